//! Rules that the code itself does not show: dependencies between crates, and promises of the
//! documents.
//!
//! This file is long because every rule about the structure of the project is here.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use tests::process::{binary, run};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn crates_depend_on_each_other_only_as_the_design_allows() {
    let of_agent: &[&str] = &[
        "schema",
        "toml-reader",
        "catalog",
        "planning",
        "settings",
        "etcd-session",
        "archive",
        "commands",
        "http-server",
        "solo-etcd",
    ];
    let of_observer: &[&str] = &[
        "schema",
        "toml-reader",
        "catalog",
        "planning",
        "fleet",
        "settings",
        "etcd-session",
        "archive",
        "commands",
        "http-server",
    ];
    let of_tests: &[&str] = &[
        "schema",
        "catalog",
        "planning",
        "fleet",
        "settings",
        "etcd-session",
        "archive",
        "simulator",
        "solo-etcd",
        "ctl",
    ];
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("schema", &[][..]),
        ("archive", &["schema"]),
        ("toml-reader", &["schema"]),
        ("catalog", &["schema", "toml-reader"]),
        ("manifest", &["schema"]),
        ("planning", &["schema", "toml-reader", "catalog"]),
        ("fleet", &["schema", "catalog", "planning"]),
        ("settings", &["schema", "toml-reader", "catalog", "planning", "fleet"]),
        ("etcd-session", &["schema", "catalog"]),
        ("commands", &[]),
        ("http-server", &[]),
        ("solo-etcd", &[]),
        ("simulator", &["schema", "planning", "solo-etcd"]),
        ("agent", of_agent),
        ("observer", of_observer),
        (
            "ctl",
            &["schema", "catalog", "planning", "fleet", "settings", "etcd-session", "archive", "solo-etcd"],
        ),
        ("hiera-bridge", &["schema", "catalog"]),
        ("answer-schemas", &["archive", "ctl", "observer"]),
        ("tests", of_tests),
    ]);
    // What the tests of a crate use as well.
    let in_tests = BTreeMap::from([("etcd-session", "solo-etcd")]);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output()
        .expect("cargo metadata");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for package in metadata["packages"].as_array().expect("packages") {
        let short = |name: &serde_json::Value| {
            let name = name.as_str().expect("a name");
            name.strip_prefix("orchestrate-").unwrap_or(name).to_owned()
        };
        let name = short(&package["name"]);
        let name = name.as_str();
        let permitted = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the design"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = short(&dependency["name"]);
            let to = to.as_str();
            let is_in_tests = dependency["kind"] == "dev" && in_tests.get(name) == Some(&to);
            let is_permitted = permitted.contains(&to) || is_in_tests;
            assert!(!allowed.contains_key(to) || is_permitted, "{name} must not depend on {to}");
            // comfy-table without features lays out text and does nothing else.
            let pure = [
                "comfy-table",
                "jiff",
                "regex-lite",
                "schemars",
                "serde",
                "serde_json",
                "toml",
                "thiserror",
                "proptest",
                "unicode-width",
            ];
            let is_pure = ["schema", "toml-reader", "catalog", "manifest", "planning", "fleet", "settings"]
                .contains(&name);
            // Compose files are YAML, and a digest names what they say.
            let is_of_manifests = name == "manifest" && ["serde-saphyr", "sha2"].contains(&to);
            let is_known = pure.contains(&to) || permitted.contains(&to) || is_of_manifests;
            assert!(!is_pure || is_known, "{name} must not use {to}");
        }
    }
}

#[test]
fn tests_need_no_feature_that_the_build_of_the_workspace_lacks() {
    let features = |edges: &str| -> BTreeSet<String> {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--workspace", "--offline", "--prefix", "none", "--format", "{p} {f}", "--edges"])
            .arg(edges)
            .current_dir(repository())
            .output()
            .expect("cargo tree");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_owned()).collect()
    };
    let built = features("normal,build");
    let tested = features("normal,build,dev");
    assert!(built.len() > 200, "{built:?}");
    let missing: Vec<&String> = tested.difference(&built).collect();
    assert!(
        missing.is_empty(),
        "add these features to tests/Cargo.toml, or everything is compiled twice: {missing:?}"
    );
}

#[test]
fn a_session_that_only_reads_has_no_call_that_writes() {
    let source = read("crates/etcd-session/src/read_only.rs");
    let code: String = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for call in ["put", "txn", "delete", "lease", "commit", "compact", "move_leader", "snapshot"] {
        assert!(!code.contains(call), "{call} in read_only.rs");
    }
    assert!(code.contains("pub struct ReadOnlySession(Session);"), "the session inside is private");
}

#[test]
fn the_observer_knows_no_session_that_writes() {
    let output = Command::new("git")
        .args(["ls-files", "observer/*.rs"])
        .current_dir(repository())
        .output()
        .expect("git");
    let files = String::from_utf8(output.stdout).expect("text");
    assert!(files.lines().count() > 10, "{files}");
    for file in files.lines() {
        let text = read(file);
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        for word in words {
            let writes = ["Session", "Transaction", "Presence", "Committed", "writes", "etcd_client"];
            assert!(!writes.contains(&word), "{word} in {file}");
        }
    }
}

#[test]
fn a_file_of_more_than_400_lines_says_why() {
    let output =
        Command::new("git").args(["ls-files", "*.rs"]).current_dir(repository()).output().expect("git");
    let files = String::from_utf8(output.stdout).expect("text");
    let long = files.lines().filter(|file| {
        // A file that was moved is listed until the change is committed.
        let text = std::fs::read_to_string(repository().join(file)).unwrap_or_default();
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        text.lines().count() > 400 && !head.join("\n").contains("This file is long because ")
    });
    let long: Vec<&str> = long.collect();
    assert!(files.lines().count() > 100, "{files}");
    assert!(long.is_empty(), "split, or say why in the module comment: {long:?}");
}

/// Returns the cells of the table rows in a Markdown text.
fn rows(text: &str) -> Vec<Vec<String>> {
    let row = |line: &str| line.trim().trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
    text.lines().filter(|l| l.starts_with('|') && !l.contains("---")).map(row).collect()
}

#[test]
fn the_key_table_is_the_one_of_the_code() {
    let text = read("docs/keys.md");
    let documented: BTreeMap<String, Vec<String>> = rows(&text)
        .into_iter()
        .filter(|row| row[0].starts_with("`/"))
        .map(|row| (row[0].trim_matches('`').to_owned(), row))
        .collect();
    let coded = schema::keys::documented();
    let paths = |keys: &[schema::keys::DocumentedKey]| keys.iter().map(|key| key.path.clone()).collect();
    assert_eq!(documented.keys().cloned().collect::<BTreeSet<_>>(), paths(&coded));
    for key in coded {
        let row = &documented[&key.path];
        let coded = key.row;
        assert!(row[1].starts_with(coded.value), "{}: {:?} is not {}", key.path, row[1], coded.value);
        assert_eq!(row[3], coded.lifetime, "{}", key.path);
    }
}

#[test]
fn every_field_of_a_report_is_documented() {
    let source = read("crates/schema/src/records/report.rs");
    let fields = source.split("pub struct Report {").nth(1).and_then(|rest| rest.split("\n}\n").next());
    let fields: BTreeSet<String> = fields
        .expect("the struct")
        .lines()
        .filter_map(|line| line.strip_prefix("    pub ")?.split(':').next().map(str::to_owned))
        .collect();
    let text = read("docs/keys.md");
    let section = text.split("## The report of a host").nth(1).expect("a section");
    let documented: BTreeSet<String> = rows(section)
        .into_iter()
        .filter(|row| row[0].starts_with('`'))
        .map(|row| row[0].trim_matches('`').to_owned())
        .collect();
    assert_eq!(documented, fields);
}

/// Returns the path and text of every Rust source of the repository, except those in `tests/`.
fn sources() -> Vec<(String, String)> {
    let output =
        Command::new("git").args(["ls-files", "*.rs"]).current_dir(repository()).output().expect("git");
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    names.lines().filter(|n| !n.starts_with("tests/")).map(|n| (n.to_owned(), read(n))).collect()
}

#[test]
fn key_paths_are_spelled_in_one_place() {
    let kinds = [
        "/current_version",
        "/running_version",
        "/status/",
        "/available_services",
        "/config_state/",
        "/config_version/",
        "/orchestrate/",
    ];
    for (name, text) in sources() {
        if name == "crates/schema/src/keys/table.rs" || name.ends_with("tests.rs") || name.contains("/tests/")
        {
            continue;
        }
        // Unit tests spell keys out on purpose; a message that names a key contains spaces too.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for literal in code.split('"') {
            let is_key = kinds.iter().any(|kind| literal.starts_with(kind)) && !literal.contains(' ');
            assert!(!is_key, "{name} spells {literal:?}");
        }
    }
}

fn check_config(text: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("agent.toml");
    // TLS files that settings name are checked; the samples name files of a site, so generated ones
    // replace them.
    let site = ["ca.crt", "host.crt", "host.key"].map(|name| format!("/etc/orchestrate/{name}"));
    let text = if site.iter().any(|file| text.contains(file)) {
        let pair = ["host.key", "host.crt"].map(|name| directory.path().join(name).display().to_string());
        let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let mut openssl = Command::new("openssl");
        openssl.args(request).args(["-subj", "/CN=host", "-keyout", &pair[0], "-out", &pair[1]]);
        assert!(run(&mut openssl, "").status.success());
        text.replace(&site[0], &pair[1]).replace(&site[1], &pair[1]).replace(&site[2], &pair[0])
    } else {
        text.to_owned()
    };
    std::fs::write(&path, text).expect("written");
    let mut command = Command::new(binary("orchestrate-agent"));
    let output = run(command.env_clear().arg("--check-config").arg("--config").arg(&path), "");
    // Programs and templates of a sample are not here, which is a warning.
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let counts = |line: &&str| !line.contains(": warning: ") && !line.contains(": the settings are valid; ");
    let errors: Vec<&str> = printed.lines().filter(counts).collect();
    (output.status.code(), errors.join("\n"))
}

#[test]
fn configuration_samples_are_accepted_by_the_program() {
    let sample = read("packaging/etc/orchestrate/agent.toml");
    assert_eq!(check_config(&sample), (Some(0), String::new()));
    // All settings of the sample are enabled, except those that exclude each other or need a file
    // of the site.
    let excluded =
        ["endpoints_file", "discovery_srv", "discovery_url", "user =", "password_file", "directory = \"/etc"];
    let all: Vec<&str> = sample
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting)
                if !setting.starts_with(' ') && !excluded.iter().any(|e| setting.starts_with(e)) =>
            {
                setting
            }
            _ => line,
        })
        .collect();
    let (code, error) = check_config(&all.join("\n"));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{}", all.join("\n"));
    for block in read("docs/configuration.md").split("```toml\n").skip(1) {
        let text = block
            .split("```")
            .next()
            .expect("an end")
            .replace("directory = \"/etc/orchestrate/validate.d\"\n", "");
        assert_eq!(check_config(&text), (Some(0), String::new()), "{text}");
    }
    for document in [
        "docs/dependencies.md",
        "docs/templates.md",
        "docs/puppet.md",
        "docs/packaging.md",
        "docs/security.md",
    ] {
        for block in read(document).split("```toml\n").skip(1) {
            let text = block.split("```").next().expect("an end");
            assert_eq!(check_config(text), (Some(0), String::new()), "{document}: {text}");
        }
    }
}

#[test]
fn service_files_in_documents_are_accepted_by_the_program() {
    let directory = tempfile::tempdir().expect("a directory");
    for (fence, name) in [("```toml\n", "sample.toml"), ("```json\n", "sample.json")] {
        let text = read("docs/discovery.md");
        let blocks: Vec<&str> =
            text.split(fence).skip(1).map(|b| b.split("```").next().expect("an end")).collect();
        assert!(!blocks.is_empty());
        for block in blocks {
            let path = directory.path().join(name);
            std::fs::write(&path, block).expect("written");
            let output = run(Command::new(binary("orchestrate")).arg("lint").arg(&path).env_clear(), "");
            let result = String::from_utf8_lossy(&output.stdout).into_owned();
            // The programs of checks are not on this machine.
            let other = result.lines().filter(|line| !line.ends_with(" is not on this machine"));
            assert_eq!((output.status.code(), other.count()), (Some(0), 0), "{block}: {result}");
        }
    }
}

#[test]
fn every_setting_of_the_sample_is_documented() {
    let documents = read("docs/configuration.md");
    for line in read("packaging/etc/orchestrate/agent.toml").lines() {
        let Some((name, _)) = line.trim_start_matches('#').split_once(" = ") else { continue };
        if name.contains(' ') {
            continue;
        }
        assert!(documents.contains(&format!("`{name}`")), "{name} is not in docs/configuration.md");
    }
}

#[test]
fn wrong_settings_are_named_with_file_line_and_the_nearest_name() {
    let (code, error) = check_config("[store]\nendpoint = [\"a\"]\n");
    assert_eq!(code, Some(1));
    assert!(error.contains("agent.toml:2: unknown setting `endpoint`; did you mean `endpoints`?"), "{error}");
}

#[test]
fn every_option_of_the_embedded_store_is_documented() {
    let documents = read("docs/solo-etcd.md");
    let help = |arguments: &[&str]| {
        let output = Command::new(binary("solo-etcd")).args(arguments).output().expect("solo-etcd");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = help(&["--help"]) + &help(&["export", "--help"]);
    let options = text.split_whitespace().filter(|word| word.starts_with("--"));
    let options: BTreeSet<&str> = options.filter(|o| !["--help", "--version"].contains(o)).collect();
    assert!(options.len() >= 5, "{options:?}");
    for option in options {
        assert!(
            documents.contains(&format!("`{option}")) || documents.contains(&format!("{option} ")),
            "{option}"
        );
    }
}

#[test]
fn the_failpoints_of_the_crash_tests_are_those_of_the_agent() {
    let source = read("agent/src/failpoint.rs");
    let listed: Vec<&str> =
        source.lines().filter_map(|l| l.trim().strip_prefix('"')?.strip_suffix("\",")).collect();
    assert_eq!(listed, crate::crash::POINTS);
}

/// Returns the rows of a table in the documents, after checking that every test named in them
/// exists.
fn tested_rows(table: &str, tests_in: usize) -> Vec<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "tests/it/*.rs",
            "crates/*/tests/*.rs",
        ])
        .current_dir(repository())
        .output()
        .expect("git");
    let of_tests = String::from_utf8(output.stdout).expect("text");
    let sources: String = of_tests
        .lines()
        // A file that was moved is listed until the change is committed.
        .filter_map(|file| std::fs::read_to_string(repository().join(file)).ok())
        .chain(sources().into_iter().map(|(_, text)| text))
        .collect();
    let rows: Vec<Vec<String>> = rows(&read(table)).into_iter().skip(1).collect();
    for row in &rows {
        for test in row[tests_in].split(',').map(|test| test.trim().trim_matches('`')) {
            let name = test.rsplit("::").next().expect("a name");
            assert!(sources.contains(&format!("fn {name}(")), "{table} names {test}, which does not exist");
        }
    }
    rows
}

#[test]
fn every_path_in_the_architecture_exists() {
    let text = read("docs/architecture.md");
    let quoted = text.split('`').skip(1).step_by(2);
    let roots = ["agent/", "crates/", "ctl/", "docs/", "hiera-bridge/", "packaging/", "tests/"];
    let paths: Vec<&str> = quoted.filter(|path| roots.iter().any(|root| path.starts_with(root))).collect();
    let missing: Vec<&&str> = paths.iter().filter(|path| !repository().join(path).exists()).collect();
    assert!(paths.len() > 40 && missing.is_empty(), "{} paths, missing: {missing:?}", paths.len());
}

#[test]
fn every_promise_of_behaviour_has_a_test_that_exists() {
    let rows = tested_rows("tests/behaviour.md", 1);
    let promises: BTreeSet<&String> = rows.iter().map(|row| &row[0]).collect();
    assert_eq!(promises.len(), rows.len(), "a promise stands twice");
    assert!(promises.iter().all(|promise| promise.ends_with('.')), "a promise is a sentence");
}

#[test]
fn every_row_of_the_fault_table_that_is_real_is_covered_by_a_test_that_exists() {
    let real: BTreeSet<u32> = (1..=17)
        .chain(19..=24)
        .chain(26..=28)
        .chain([30])
        .chain(32..=60)
        .chain([66, 67, 68, 72, 73, 74])
        .chain(75..=82)
        .collect();
    let covered: BTreeSet<u32> =
        tested_rows("tests/faults.md", 2).iter().filter_map(|row| row[0].parse().ok()).collect();
    let missing: Vec<u32> = real.difference(&covered).copied().collect();
    assert!(missing.is_empty(), "rows of the fault table without a test: {missing:?}");
}
