//! The rules of a rolling upgrade, as the original tool reads them from its file and its option.

use super::pattern::RolePattern;
use schema::names::{Role, quoted};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Rules that cannot be used: the key, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {detail}")]
pub(crate) struct RuleError {
    key: String,
    detail: String,
}

fn wrong<T>(key: &str, detail: impl Into<String>) -> Result<T, RuleError> {
    Err(RuleError { key: quoted(key), detail: detail.into() })
}

/// The rules of a rolling upgrade.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct UpgradeRules {
    /// How many hosts of each role or group may be upgraded at the same time; `None` for any number.
    global: Option<u32>,
    /// The same for some roles and groups.
    roles: BTreeMap<Role, u32>,
    /// The roles and groups that must be upgraded before a role or group.
    dependencies: BTreeMap<Role, BTreeSet<Role>>,
    /// The patterns of the roles that count together.
    groups: BTreeMap<Role, Vec<RolePattern>>,
}

impl UpgradeRules {
    /// Reads rules. What they do not contain, or leave empty, is taken from `defaults`.
    ///
    /// # Errors
    /// Returns the key that is unknown or has a value that cannot be used.
    pub(crate) fn read(text: &str, defaults: Self) -> Result<Self, RuleError> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return wrong("", format!("not JSON: {error}")),
        };
        let mut rules = defaults;
        for (key, value) in object("", &value)? {
            if !["rolling_rules", "role_dependencies", "group_mappings"].contains(&key.as_str()) {
                let known = "rolling_rules, role_dependencies and group_mappings are the known ones";
                return wrong(key, format!("unknown key; {known}"));
            }
            if value.is_null() || value.as_object().is_some_and(Map::is_empty) {
                continue;
            }
            let found = object(key, value)?;
            match key.as_str() {
                "rolling_rules" => (rules.global, rules.roles) = rolling_rules(found)?,
                "role_dependencies" => rules.dependencies = dependencies(found)?,
                _ => rules.groups = groups(found)?,
            }
        }
        Ok(rules)
    }

    /// Returns the group of a role: the first by name with a pattern that matches, or the role itself.
    pub(super) fn group_of<'a>(&'a self, role: &'a Role) -> &'a Role {
        let matches =
            |patterns: &[RolePattern]| patterns.iter().any(|pattern| pattern.matches(role.as_str()));
        self.groups.iter().find(|(_, patterns)| matches(patterns)).map_or(role, |(group, _)| group)
    }

    /// Returns how many hosts of a group may be upgraded at the same time.
    pub(super) fn most(&self, group: Option<&Role>) -> Option<u32> {
        self.most_of(group).or(self.global)
    }

    /// Returns the rule of a role or group of its own. 0 holds all of its hosts.
    pub(super) fn most_of(&self, name: Option<&Role>) -> Option<u32> {
        name.and_then(|name| self.roles.get(name)).copied()
    }

    /// Returns what must be upgraded before a role or group.
    pub(super) fn before(&self, name: &Role) -> impl Iterator<Item = &Role> {
        self.dependencies.get(name).into_iter().flatten()
    }
}

fn object<'a>(key: &str, value: &'a Value) -> Result<&'a Map<String, Value>, RuleError> {
    value.as_object().map_or_else(|| wrong(key, "not an object"), Ok)
}

fn name(key: &str, text: &str) -> Result<Role, RuleError> {
    Role::new(text).or_else(|error| wrong(key, error.to_string()))
}

/// Reads a number, which callers also write as text.
fn number(key: &str, value: &Value) -> Result<u32, RuleError> {
    let read = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    read.map_or_else(|| wrong(key, format!("{value} is not a number of hosts")), Ok)
}

fn rolling_rules(found: &Map<String, Value>) -> Result<(Option<u32>, BTreeMap<Role, u32>), RuleError> {
    let (mut global, mut roles) = (None, BTreeMap::new());
    for (key, value) in found {
        let path = format!("rolling_rules.{key}");
        match key.as_str() {
            "global" if value.is_null() => {}
            "global" => global = Some(number(&path, value)?),
            "roles" => {
                for (role, value) in object(&path, value)? {
                    let path = format!("{path}.{role}");
                    roles.insert(name(&path, role)?, number(&path, value)?);
                }
            }
            _ => return wrong(&path, "unknown key; global and roles are the known ones"),
        }
    }
    Ok((global, roles))
}

/// Returns the texts of a list; one text counts as a list of one.
fn texts<'a>(key: &str, value: &'a Value) -> Result<Vec<&'a str>, RuleError> {
    let list = match value {
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        other => other.as_str().map(|text| vec![text]),
    };
    list.map_or_else(|| wrong(key, "neither a text nor a list of texts"), Ok)
}

fn dependencies(found: &Map<String, Value>) -> Result<BTreeMap<Role, BTreeSet<Role>>, RuleError> {
    let mut all = BTreeMap::new();
    for (key, value) in found {
        let path = format!("role_dependencies.{key}");
        let role = name(&path, key)?;
        let before = texts(&path, value)?.into_iter().map(|text| name(&path, text));
        let before = before.collect::<Result<BTreeSet<Role>, RuleError>>()?;
        if before.contains(&role) {
            return wrong(&path, "it depends on itself");
        }
        all.insert(role, before);
    }
    Ok(all)
}

fn groups(found: &Map<String, Value>) -> Result<BTreeMap<Role, Vec<RolePattern>>, RuleError> {
    let mut all = BTreeMap::new();
    for (key, value) in found {
        let path = format!("group_mappings.{key}");
        let read = |text: &str| {
            RolePattern::read(text).or_else(|error| wrong(&path, format!("{}: {error}", quoted(text))))
        };
        let patterns = texts(&path, value)?.into_iter().map(read);
        all.insert(name(&path, key)?, patterns.collect::<Result<Vec<RolePattern>, RuleError>>()?);
    }
    Ok(all)
}
