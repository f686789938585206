//! Merges several files into one table. Tables merge, arrays of tables append in the order of the
//! files, and every other value replaces the earlier one. Each value remembers its file and line.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use toml::de::{DeTable, DeValue, Deserializer};
use toml::{Spanned, Table, Value};
use toml_reader::SettingsError;
use toml_reader::text::line_at;

/// The setting that makes an entry replace an earlier one.
const REPLACE: &str = "replace";

/// The file and line of a value.
#[derive(Debug, Clone)]
struct SettingLocation {
    file: String,
    line: usize,
}

impl std::fmt::Display for SettingLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Debug, Clone)]
enum Node {
    Value(Value, SettingLocation),
    Table(Tree),
    Entries(Vec<(Tree, SettingLocation)>),
}

/// A table whose values remember their places.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Takes the table of one file, and its text, by which lines are counted.
    pub(super) fn of(file: &str, text: &str, table: Spanned<DeTable<'_>>) -> Self {
        let place = |offset| SettingLocation { file: file.to_owned(), line: line_at(text, offset) };
        // A table of TOML becomes a table of values, whatever it contains.
        let values = Table::deserialize(Deserializer::from(table.clone())).unwrap_or_default();
        Self::build(values, table.get_ref(), &place)
    }

    fn build(values: Table, spans: &DeTable<'_>, place: &impl Fn(usize) -> SettingLocation) -> Self {
        let nodes = values.into_iter().filter_map(|(name, value)| {
            let (key, span) = spans.iter().find(|(key, _)| key.get_ref().as_ref() == name)?;
            Some((name, Node::build(value, key.span().start, span, place)))
        });
        Self(nodes.collect())
    }

    /// Merges the values of a later file. Returns the entries that already exist and are not marked
    /// to replace the earlier one, and those that are to replace another one that does not exist.
    /// The latter are not judged if tables were lost.
    pub(super) fn merge(&mut self, later: Self, lost_tables: bool) -> Vec<SettingsError> {
        let mut errors = Vec::new();
        for (name, node) in later.0 {
            match (self.0.get_mut(&name), node) {
                (Some(Node::Table(old)), Node::Table(new)) => errors.extend(old.merge(new, lost_tables)),
                (Some(Node::Entries(old)), Node::Entries(new)) => {
                    errors.extend(append(&name, old, new, lost_tables));
                }
                (_, Node::Entries(new)) => {
                    let mut entries = Vec::new();
                    errors.extend(append(&name, &mut entries, new, lost_tables));
                    self.0.insert(name, Node::Entries(entries));
                }
                (_, node) => {
                    self.0.insert(name, node);
                }
            }
        }
        errors
    }

    /// Returns the file and line of a path such as `apply.0.command`, or of its deepest part that is
    /// written.
    pub(super) fn place(&self, path: &str) -> Option<(String, usize)> {
        self.find(path).map(|place| (place.file.clone(), place.line))
    }

    fn find(&self, path: &str) -> Option<&SettingLocation> {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        match self.0.get(name)? {
            Node::Value(_, place) => Some(place),
            Node::Table(tree) => tree.find(rest).or_else(|| tree.first()),
            Node::Entries(entries) => {
                let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
                let (tree, place) = entries.get(number.parse::<usize>().ok()?)?;
                Some(tree.find(rest).unwrap_or(place))
            }
        }
    }

    /// Returns the place of the first value.
    fn first(&self) -> Option<&SettingLocation> {
        self.0.values().find_map(|node| match node {
            Node::Value(_, place) => Some(place),
            Node::Table(tree) => tree.first(),
            Node::Entries(entries) => entries.first().map(|(_, place)| place),
        })
    }

    /// True if a value with this path is written.
    pub(super) fn contains(&self, path: &str) -> bool {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        match self.0.get(name) {
            None => false,
            Some(_) if rest.is_empty() => true,
            Some(Node::Value(..)) => false,
            Some(Node::Table(tree)) => tree.contains(rest),
            Some(Node::Entries(entries)) => {
                let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
                let entry = number.parse().ok().and_then(|number: usize| entries.get(number));
                entry.is_some_and(|(tree, _)| rest.is_empty() || tree.contains(rest))
            }
        }
    }

    /// Returns the table without places.
    pub(super) fn into_table(self) -> Table {
        let plain = |node| match node {
            Node::Value(value, _) => value,
            Node::Table(tree) => Value::Table(tree.into_table()),
            Node::Entries(entries) => {
                Value::Array(entries.into_iter().map(|(tree, _)| Value::Table(tree.into_table())).collect())
            }
        };
        self.0.into_iter().map(|(name, node)| (name, plain(node))).collect()
    }

    /// Returns the table as TOML, with the place of each value. Values in `environment` that may be
    /// secrets are hidden.
    pub(super) fn show(&self) -> String {
        let mut text = String::new();
        self.show_below("", &mut text);
        text
    }

    fn show_below(&self, path: &str, text: &mut String) {
        let below = |name: &str| if path.is_empty() { key(name) } else { format!("{path}.{}", key(name)) };
        // Plain values come first, because values after the head of a table belong to that table.
        for (name, node) in &self.0 {
            if let Node::Value(value, place) = node {
                let hidden = path == "environment" && is_secret_name(name);
                let value = if hidden { Value::String("***".into()) } else { value.clone() };
                let _ = writeln!(text, "{} = {value}  # {place}", key(name));
            }
        }
        for (name, node) in &self.0 {
            match node {
                Node::Value(..) => {}
                Node::Table(tree) => {
                    let _ = writeln!(text, "\n[{}]", below(name));
                    tree.show_below(&below(name), text);
                }
                Node::Entries(entries) => {
                    for (tree, place) in entries {
                        let _ = writeln!(text, "\n[[{}]]  # {place}", below(name));
                        tree.show_below(&below(name), text);
                    }
                }
            }
        }
    }

    fn text(&self, name: &str) -> String {
        match self.0.get(name) {
            Some(Node::Value(Value::String(text), _)) => text.clone(),
            _ => String::new(),
        }
    }

    /// Returns the text that identifies an entry of a list.
    fn identity(&self, list: &str) -> String {
        match list {
            "requires" => {
                let step = self.text("step");
                let step = if step.is_empty() { String::new() } else { format!(", step {step}") };
                format!("{} (phase {}{step})", self.text("service"), self.text("phase"))
            }
            "template" => self.text("target"),
            _ => self.text("name"),
        }
    }

    /// True if this entry is to replace an earlier one. Removes `replace`, which is not a setting.
    fn take_replace(&mut self) -> bool {
        matches!(self.0.remove(REPLACE), Some(Node::Value(Value::Boolean(true), _)))
    }
}

impl Node {
    fn build(
        value: Value,
        start: usize,
        span: &Spanned<DeValue<'_>>,
        place: &impl Fn(usize) -> SettingLocation,
    ) -> Self {
        match (value, span.get_ref()) {
            (Value::Table(values), DeValue::Table(spans)) => Self::Table(Tree::build(values, spans, place)),
            (Value::Array(values), DeValue::Array(spans))
                if !values.is_empty() && values.iter().all(Value::is_table) =>
            {
                let entries = values.into_iter().zip(spans.iter()).filter_map(|(value, span)| {
                    match (value, span.get_ref()) {
                        (Value::Table(values), DeValue::Table(spans)) => {
                            Some((Tree::build(values, spans, place), place(span.span().start)))
                        }
                        _ => None,
                    }
                });
                Self::Entries(entries.collect())
            }
            (value, _) => Self::Value(value, place(start)),
        }
    }
}

fn append(
    list: &str,
    entries: &mut Vec<(Tree, SettingLocation)>,
    new: Vec<(Tree, SettingLocation)>,
    lost_tables: bool,
) -> Vec<SettingsError> {
    let mut errors = Vec::new();
    for (mut tree, place) in new {
        let replaces = tree.take_replace();
        let identity = tree.identity(list);
        let existing = entries.iter_mut().find(|(old, _)| old.identity(list) == identity);
        let mut wrong = |place: &SettingLocation, message: String| {
            let setting = String::new();
            errors.push(SettingsError { file: place.file.clone(), line: Some(place.line), setting, message });
        };
        match (existing, replaces) {
            (None, true) if !lost_tables => wrong(
                &place,
                format!("[[{list}]] {identity} has `replace = true`, but there is no earlier entry"),
            ),
            (None, _) => entries.push((tree, place)),
            (Some(existing), true) => *existing = (tree, place),
            (Some((_, first)), false) => wrong(
                &place,
                format!(
                    "[[{list}]] {identity} is already defined in {first}; `replace = true` here would replace it"
                ),
            ),
        }
    }
    errors
}

/// Returns a key as TOML writes it.
fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_bare { name.to_owned() } else { Value::String(name.to_owned()).to_string() }
}

/// True if an environment variable of this name may hold a secret.
pub fn is_secret_name(name: &str) -> bool {
    const WORDS: [&str; 6] = ["PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "KEY"];
    let name = name.to_ascii_uppercase();
    name.ends_with("PASS") || WORDS.iter().any(|suffix| name.contains(suffix))
}

#[cfg(test)]
mod tests {
    use crate::{read, read_with_places};

    fn fragments(texts: &[&str]) -> Vec<(String, String)> {
        let file = |(number, text): (usize, &&str)| (format!("{number}.toml"), (*text).to_owned());
        texts.iter().enumerate().map(file).collect()
    }

    fn step(phase: &str, name: &str, more: &str) -> String {
        format!("[[{phase}]]\nname = \"{name}\"\ncommand = [\"/bin/{name}\"]\n{more}")
    }

    #[test]
    fn arrays_of_tables_append_in_the_order_of_the_files_and_other_values_replace() {
        let settings = read(&fragments(&[
            &(step("apply", "a", "") + "[[requires]]\nservice = \"db\"\nphase = \"apply\"\n"),
            &(step("apply", "b", "") + "[[requires]]\nservice = \"mq\"\nphase = \"apply\"\n"),
            &("[store]\nendpoints = [\"c\"]\n".to_owned() + &step("apply", "c", "")),
            "[store]\nendpoints = [\"d\"]\n",
        ]))
        .unwrap();
        let names: Vec<&str> = settings.policy.steps.apply.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let needs: Vec<&str> = settings.policy.requires.iter().map(|need| need.service.as_str()).collect();
        assert_eq!(needs, ["db", "mq"]);
        assert_eq!(settings.store.endpoints.unwrap(), ["d"]);
    }

    #[test]
    fn the_same_entry_twice_is_refused_naming_both_places_unless_the_later_replaces_it() {
        let check = |texts: &[&str], expected: &str| {
            let error_text = read(&fragments(texts)).unwrap_err().to_string();
            assert_eq!(error_text, expected);
        };
        let a = step("apply", "a", "");
        let already = "is already defined in 0.toml:1; `replace = true` here would replace it";
        check(&[&a, &format!("role = \"x\"\n\n{a}")], &format!("1.toml:3: [[apply]] a {already}"));
        check(&[&format!("{a}{a}")], &format!("0.toml:4: [[apply]] a {already}"));
        let need = "[[requires]]\nservice = \"db\"\nphase = \"apply\"\n";
        check(&[need, need], &format!("1.toml:1: [[requires]] db (phase apply) {already}"));
        let template = "[[template]]\nsource = \"/s\"\ntarget = \"/t\"\n";
        check(&[template, template], &format!("1.toml:1: [[template]] /t {already}"));
        check(
            &[&step("apply", "a", "replace = true\n")],
            "0.toml:1: [[apply]] a has `replace = true`, but there is no earlier entry",
        );
        // Entries of different phases, and needs of different steps, are different entries.
        read(&fragments(&[&a, &step("validate", "a", "")])).unwrap();
        let of_step = format!("{a}{need}[[requires]]\nservice = \"db\"\nphase = \"apply\"\nstep = \"a\"\n");
        read(&fragments(&[&of_step])).unwrap();
        let replaced = "[[apply]]\nname = \"a\"\ncommand = [\"/bin/z\"]\nreplace = true\n";
        let settings = read(&fragments(&[&(a + &step("apply", "b", "")), replaced])).unwrap();
        let commands: Vec<&str> =
            settings.policy.steps.apply.iter().map(|step| step.command[0].as_str()).collect();
        assert_eq!(commands, ["/bin/z", "/bin/b"], "in the place of the earlier");
    }

    #[test]
    fn what_comes_of_the_files_is_shown_with_the_place_of_each_value() {
        let (shown, _) = read_with_places(&fragments(&[
            "role = \"web\"\n[labels]\n\"rack row\" = \"1\"\n[store]\nendpoints = [\"a\"]\n[environment]\nDB_PASSWORD = \"canary\"\nSITE = \"x\"\n",
            "[store]\n\nendpoints = [\"b\"]\n\n[[apply]]\nname = \"a\"\ncommand = [\"/bin/a\"]\n",
        ]));
        let shown = shown.unwrap().show();
        assert_eq!(
            shown,
            "role = \"web\"  # 0.toml:1\n\n\
             [[apply]]  # 1.toml:5\ncommand = [\"/bin/a\"]  # 1.toml:7\nname = \"a\"  # 1.toml:6\n\n\
             [environment]\nDB_PASSWORD = \"***\"  # 0.toml:7\nSITE = \"x\"  # 0.toml:8\n\n\
             [labels]\n\"rack row\" = \"1\"  # 0.toml:3\n\n\
             [store]\nendpoints = [\"b\"]  # 1.toml:3\n"
        );
        read(&[("shown".into(), shown)]).unwrap();
    }
}
