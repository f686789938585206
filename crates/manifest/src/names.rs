//! Validated names of a manifest. Names of services are `schema::names::ServiceName`.

use schema::names::quoted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The error of a text that is no name of its kind: what is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {right}")]
pub struct NameError {
    pub what: String,
    /// What would be right.
    pub right: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $right:expr, $is_valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the text against the rule of this kind of name.
            ///
            /// # Errors
            /// Returns what is wrong, and what would be right.
            pub fn new(text: &str) -> Result<Self, NameError> {
                let is_valid: fn(&str) -> bool = $is_valid;
                if is_valid(text) {
                    return Ok(Self(text.to_owned()));
                }
                let right: fn(&str) -> String = $right;
                Err(NameError { what: format!("{} is no {}", quoted(text), $what), right: right(text) })
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

/// Longest name of a group, in bytes.
const GROUP_MAX_BYTES: usize = 32;
/// Longest path of a volume in a service, in bytes.
const PATH_MAX_BYTES: usize = 1024;

name!(
    /// The name of a group: services that are deployed together. It has no hyphen, so the name
    /// `<group>-<service>` splits in one way.
    GroupName,
    "name of a group",
    propose_group,
    |text| {
        let is_plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        is_plain && (1..=GROUP_MAX_BYTES).contains(&text.len())
    }
);
name!(
    /// A unit of systemd, or a template with or without its instance.
    UnitName,
    "name of a unit",
    |_| "write a service unit that root installed, as in shop-web.service or worker@.service".to_owned(),
    |text| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b":_.@\\-".contains(&b);
        let stem = text.strip_suffix(".service").unwrap_or_default();
        let begins_well = stem.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        begins_well && stem.bytes().all(is_plain) && stem.matches('@').count() <= 1 && text.len() <= 255
    }
);
name!(
    /// A program that root defined on the hosts.
    ProgramName,
    "name of a program",
    |_| "write letters, digits, `_`, `.` and `-`, and begin with a letter or a digit".to_owned(),
    is_word
);
name!(
    /// A volume that pins a slot to its host.
    VolumeName,
    "name of a volume",
    |_| "write letters, digits, `_`, `.` and `-`, and begin with a letter or a digit".to_owned(),
    is_word
);
name!(
    /// A profile that switches services on.
    ProfileName,
    "name of a profile",
    |_| "write letters, digits, `_`, `.` and `-`, and begin with a letter or a digit".to_owned(),
    is_word
);
name!(
    /// The name of a variable in the environment of a service.
    VariableName,
    "name of a variable",
    |_| "write letters, digits and `_`, and begin with a letter or `_`".to_owned(),
    |text| {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && text.len() <= 128
    }
);
name!(
    /// The name of a label of a service.
    LabelKey,
    "name of a label",
    |_| "write 1 to 128 printable characters without blanks and without `=`".to_owned(),
    |text| {
        let is_plain = |b: u8| b.is_ascii_graphic() && b != b'=';
        (1..=128).contains(&text.len()) && text.bytes().all(is_plain)
    }
);
name!(
    /// The directory of a volume as the service sees it.
    MountPath,
    "path of a volume",
    |_| "write an absolute path without `..`, as in /var/lib/shop".to_owned(),
    |text| {
        let is_plain = text.starts_with('/') && !text.chars().any(char::is_control);
        is_plain && text.split('/').all(|part| part != "..") && text.len() <= PATH_MAX_BYTES
    }
);

fn is_word(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) && text.len() <= 128
}

fn propose_group(text: &str) -> String {
    let kept = text.chars().filter(char::is_ascii_alphanumeric).take(GROUP_MAX_BYTES);
    let proposed: String = kept.map(|c| c.to_ascii_lowercase()).collect();
    let rule = format!("write 1 to {GROUP_MAX_BYTES} small letters and digits");
    if proposed.is_empty() { rule } else { format!("{rule}, for example `{proposed}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_follows_its_rule() {
        type Check = fn(&str) -> bool;
        let group: Check = |text| GroupName::new(text).is_ok();
        let unit: Check = |text| UnitName::new(text).is_ok();
        let variable: Check = |text| VariableName::new(text).is_ok();
        let label: Check = |text| LabelKey::new(text).is_ok();
        let path: Check = |text| MountPath::new(text).is_ok();
        let word: Check = |text| ProgramName::new(text).is_ok() && VolumeName::new(text).is_ok();
        let long = "x".repeat(33);
        let cases: [(Check, &[&str], &[&str]); 6] = [
            (group, &["shop", "4", "shop2"], &["", "shop-eu", "Shop", "shöp", &long]),
            (
                unit,
                &["a.service", "shop-db.service", "worker@.service", "worker@a.service"],
                &["", ".service", "a", "a.timer", "a/b.service", "a b.service", "-a.service", "a@b@.service"],
            ),
            (variable, &["A", "_a1"], &["", "1A", "A-B", "A=B"]),
            (label, &["a", "org.example/team"], &["", "a b", "a=b"]),
            (path, &["/", "/var/lib"], &["", "var", "/a/../b", "/a\n"]),
            (word, &["a", "worker.1-x_y"], &["", "-a", "a b", "a/b", "ä"]),
        ];
        for (is_valid, good, bad) in cases {
            for text in good {
                assert!(is_valid(text), "{text}");
            }
            for text in bad {
                assert!(!is_valid(text), "{text}");
            }
        }
    }

    #[test]
    fn a_name_with_hyphens_gets_a_proposal() {
        let error = GroupName::new("Shop-EU").unwrap_err();
        assert_eq!(error.right, "write 1 to 32 small letters and digits, for example `shopeu`");
    }
}
