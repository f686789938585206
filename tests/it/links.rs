//! Links between the documents of this repository, and numbers of invariants that code and documents cite.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

#[test]
fn every_internal_link_leads_to_a_file_and_a_heading() {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(&repository)
        .output()
        .expect("git");
    let files = String::from_utf8(output.stdout).expect("text");
    let documents: BTreeMap<PathBuf, Document> = files
        .lines()
        .map(|file| {
            let text = std::fs::read_to_string(repository.join(file)).expect(file);
            (PathBuf::from(file), Document::parse(&text))
        })
        .collect();
    let mut broken = Vec::new();
    for (file, document) in &documents {
        for link in &document.links {
            if let Err(why) = follow(link, file, &documents, &repository) {
                broken.push(format!("{}: {link}: {why}", file.display()));
            }
        }
    }
    assert!(documents.len() > 10, "{documents:#?}");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_verb_of_the_contract_is_one_of_the_command_line() {
    let read = |name: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        std::fs::read_to_string(path).expect(name)
    };
    let (contract, manual) = (read("contract.md"), read("command-line.md"));
    let verbs: Vec<&str> = contract
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| C")?.split('|').nth(1)?.trim().strip_prefix('`')?.split('`').next()
        })
        .collect();
    assert!(verbs.len() > 25, "{verbs:?}");
    for verb in verbs {
        let words =
            verb.split(' ').take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        let heading = format!("### `{}", words.collect::<Vec<_>>().join(" "));
        assert!(manual.contains(&heading), "{verb}: command-line.md has no heading {heading:?}");
    }
}

/// Returns the numbers of invariants in a text: `I` or `R` and one or two digits.
#[test]
fn every_error_of_the_store_is_documented() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let read = |path: &str| std::fs::read_to_string(format!("{repository}/{path}")).expect(path);
    let source = read("crates/etcd-session/src/error.rs");
    let (_, variants) = source.split_once("pub enum StoreError {").expect("the type");
    let (variants, _) = variants.split_once("\n}").expect("its end");
    let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    let variants = variants.lines().filter(is_variant);
    let variants: BTreeSet<&str> =
        variants.map(|line| line.trim().split([' ', '(', ',']).next().expect("a name")).collect();
    let document = read("docs/errors.md");
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| row.split('|').nth(1).expect("a cell").split('`').skip(1).step_by(2));
    let documented: BTreeSet<&str> = names.filter(|name| name.starts_with(char::is_uppercase)).collect();
    assert_eq!(documented, variants);
}

fn invariants(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let is_number = |word: &&str| {
        let digits = word.strip_prefix(['I', 'R']).unwrap_or_default();
        (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    words.filter(is_number).collect()
}

#[test]
fn every_invariant_that_is_cited_is_documented() {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.md", "*.py"])
        .current_dir(&repository)
        .output()
        .expect("git");
    let files = String::from_utf8(output.stdout).expect("text");
    let manual = std::fs::read_to_string(repository.join("docs/invariants.md")).expect("the manual");
    for file in files.lines().filter(|file| *file != "CHANGELOG.md") {
        // A file that was moved is listed until the change is committed.
        let text = std::fs::read_to_string(repository.join(file)).unwrap_or_default();
        let unknown: Vec<&str> = invariants(&text)
            .into_iter()
            .filter(|number| !manual.contains(&format!("| {number} |")))
            .collect();
        assert!(unknown.is_empty(), "{file} cites {unknown:?}, which docs/invariants.md does not name");
    }
}

#[test]
fn headings_get_the_anchors_that_git_hosts_give_them() {
    let text =
        "# What goes *silent*, together\n## `drop-stale`\n### Twice\n### Twice\n[x](a.md#b) `[no](link)`";
    let document = Document::parse(text);
    let anchors = ["drop-stale", "twice", "twice-1", "what-goes-silent-together"];
    assert_eq!(document.anchors, anchors.map(String::from).into());
    assert_eq!(document.links, ["a.md#b"]);
}

/// The links and the anchors of a document.
#[derive(Debug, Default)]
struct Document {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Document {
    fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. }) => document.links.push(dest_url.to_string()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let slug = slug(&heading.take().unwrap_or_default());
                    let numbered = (1..).map(|number| format!("{slug}-{number}"));
                    let free = std::iter::once(slug.clone())
                        .chain(numbered)
                        .find(|anchor| !document.anchors.contains(anchor));
                    document.anchors.extend(free);
                }
                _ => {}
            }
        }
        document
    }
}

/// The anchor of a heading: lower case, spaces become hyphens, punctuation goes.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn follow(
    link: &str,
    from: &Path,
    documents: &BTreeMap<PathBuf, Document>,
    repository: &Path,
) -> Result<(), &'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let mut target = if path.is_empty() { from.to_owned() } else { PathBuf::new() };
    if !path.is_empty() {
        for part in from.parent().unwrap_or(Path::new("")).join(path).components() {
            match part {
                Component::ParentDir => drop(target.pop()),
                Component::Normal(name) => target.push(name),
                _ => {}
            }
        }
    }
    if !repository.join(&target).exists() {
        return Err("there is no such file");
    }
    match (anchor, documents.get(&target)) {
        (Some(anchor), Some(document)) if !document.anchors.contains(anchor) => {
            Err("there is no such heading")
        }
        (Some(_), None) => Err("only documents have headings"),
        _ => Ok(()),
    }
}
