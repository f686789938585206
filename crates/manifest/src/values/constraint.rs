//! Which hosts may run a service: `node.labels.zone != attic`.

use super::error::ValueError;
use schema::names::{LabelName, quoted};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest value of a constraint, in bytes.
const VALUE_MAX_BYTES: usize = 128;

/// The property of a host that a constraint or a preference is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    /// The name of the host.
    HostName,
    /// Its role on the roster.
    Role,
    /// Its group on the roster.
    Group,
    /// One of its labels on the roster.
    Label(LabelName),
}

/// How the property and the value have to relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// `==`: only hosts with this value.
    Equal,
    /// `!=`: only hosts with another value, or with none.
    NotEqual,
    /// `~`: hosts with this value come first, and others are allowed.
    Prefer,
}

/// A constraint of `deploy.placement.constraints`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Constraint {
    /// The property of the host.
    pub subject: Subject,
    pub operator: Operator,
    /// The value to compare with, byte for byte.
    pub value: String,
}

impl FromStr for Subject {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let right = "write node.labels.NAME, node.hostname, node.role or node.group";
        match text {
            "node.hostname" => return Ok(Self::HostName),
            "node.role" => return Ok(Self::Role),
            "node.group" => return Ok(Self::Group),
            _ => {}
        }
        let label = text
            .strip_prefix("node.labels.")
            .ok_or_else(|| ValueError::new(format!("{} is no property of a host", quoted(text)), right))?;
        let label = LabelName::new(label).map_err(|error| ValueError::new(error.to_string(), right))?;
        Ok(Self::Label(label))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostName => f.write_str("node.hostname"),
            Self::Role => f.write_str("node.role"),
            Self::Group => f.write_str("node.group"),
            Self::Label(label) => write!(f, "node.labels.{label}"),
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Prefer => "~",
        })
    }
}

impl FromStr for Constraint {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let all = [("==", Operator::Equal), ("!=", Operator::NotEqual), ("~", Operator::Prefer)];
        let found = all.iter().filter_map(|(sign, operator)| Some((text.find(sign)?, *sign, *operator)));
        let Some((at, sign, operator)) = found.min_by_key(|(at, _, _)| *at) else {
            return Err(ValueError::new(
                format!("{} has no operator", quoted(text)),
                "write ==, != or ~, as in node.labels.zone == attic",
            ));
        };
        let subject = text[..at].trim().parse()?;
        let value = text[at + sign.len()..].trim();
        let is_fine =
            !value.is_empty() && value.len() <= VALUE_MAX_BYTES && !value.chars().any(char::is_control);
        if !is_fine {
            return Err(ValueError::new(
                format!("{} is no value to compare with", quoted(value)),
                format!("write 1 to {VALUE_MAX_BYTES} printable characters behind {sign}"),
            ));
        }
        Ok(Self { subject, operator, value: value.to_owned() })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.subject, self.operator, self.value)
    }
}

macro_rules! as_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = ValueError;
            fn try_from(text: String) -> Result<Self, ValueError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

as_text!(Subject);
as_text!(Constraint);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_has_a_property_an_operator_and_a_value() {
        for (text, expected) in [
            ("node.labels.zone != attic", "node.labels.zone != attic"),
            ("node.labels.zone==a", "node.labels.zone == a"),
            ("  node.hostname  ~  h1 ", "node.hostname ~ h1"),
            ("node.role == web", "node.role == web"),
            ("node.group ~ a==b", "node.group ~ a==b"),
            ("node.labels.org.example.x == two words", "node.labels.org.example.x == two words"),
        ] {
            assert_eq!(text.parse::<Constraint>().unwrap().to_string(), expected, "{text}");
        }
        for (text, expected) in [
            ("disktype=ssd", "has no operator"),
            ("", "has no operator"),
            ("node.labels.zone ==", "no value"),
            ("node.labels.zone == a\u{7}", "no value"),
            ("== a", "no property of a host"),
            ("node.id == a", "no property of a host"),
            ("engine.labels.os == linux", "no property of a host"),
            ("node.labels. == a", "must be 1 to 128"),
        ] {
            let error = text.parse::<Constraint>().unwrap_err();
            assert!(error.what.contains(expected), "{text}: {error}");
        }
    }
}
