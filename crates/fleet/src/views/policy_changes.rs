//! What a new rollout policy changes, in words.

use serde_json::Value;
use std::collections::BTreeMap;

/// Number of changes that are named.
const NAMED_MAX: usize = 5;
/// What the program notes in a policy, and no operator says.
const NOT_SAID: [&str; 2] = ["format", "since"];

/// Returns what differs between two policies as the store has them; `None` if one of them cannot be read, because events
/// keep only the start of long values.
pub(super) fn policy_changes(old: &str, new: &str) -> Option<String> {
    let [old, new] = [leaves(old)?, leaves(new)?];
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let word = |of: Option<&String>| of.map_or_else(|| "none".to_owned(), Clone::clone);
    let differs = |name: &&String| old.get(*name) != new.get(*name);
    let change = |name: &String| format!("{name} {} to {}", word(old.get(name)), word(new.get(name)));
    let mut changes: Vec<String> = names.into_iter().filter(differs).map(change).collect();
    let more = changes.split_off(changes.len().min(NAMED_MAX)).len();
    changes.extend((more > 0).then(|| format!("and {more} more")));
    Some(if changes.is_empty() { "nothing changed".into() } else { changes.join(", ") })
}

/// Returns each value of a policy that is no list and no table, under its name.
fn leaves(policy: &str) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let Value::Object(mut table) = serde_json::from_str(policy).ok()? else { return None };
    table.retain(|name, _| !NOT_SAID.contains(&name.as_str()));
    add_leaves("", &Value::Object(table), &mut found);
    Some(found)
}

fn add_leaves(name: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    let below = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match value {
        Value::Object(table) => table.iter().for_each(|(part, value)| add_leaves(&below(part), value, found)),
        Value::Array(list) => {
            // A limit is known by what it limits, wherever it stands.
            let by = |value: &Value| Some(value.get("by")?.as_str()?.to_owned());
            for (at, value) in list.iter().enumerate() {
                let part = by(value).unwrap_or_else(|| (at + 1).to_string());
                add_leaves(&below(&part), value, found);
            }
        }
        Value::String(text) => _ = found.insert(name.to_owned(), text.clone()),
        other => _ = found.insert(name.to_owned(), other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_two_policies_is_named() {
        let one = r#"{"format":1,"limits":[{"by":"fleet","max":1},{"by":"role","max":2}],"since":3}"#;
        for (new, expected) in [
            (one, "nothing changed"),
            (
                r#"{"format":1,"limits":[{"by":"role","max":2},{"by":"fleet","max":5}],"since":9}"#,
                "limits.fleet.max 1 to 5",
            ),
            (
                r#"{"format":1,"limits":[{"by":"fleet","max":1}],"hold":"10m","since":3}"#,
                "hold none to 10m, limits.role.by role to none, limits.role.max 2 to none",
            ),
            (
                r#"{"limits":[],"stages":[{"max":1},{"max":2}],"since":3}"#,
                "limits.fleet.by fleet to none, limits.fleet.max 1 to none, limits.role.by role to none, \
                 limits.role.max 2 to none, stages.1.max none to 1, and 1 more",
            ),
        ] {
            assert_eq!(policy_changes(one, new).as_deref(), Some(expected), "{new}");
        }
        for cut in ["", "no JSON", r#"{"limits":[{"by""#, "[]"] {
            assert_eq!(policy_changes(one, cut), None, "{cut}");
        }
    }
}
