//! Values that the original tool keeps for hosts: for the whole fleet, for a role, or for one host. The
//! narrowest one counts.

use crate::names::{HostName, Role};

/// Longest value, in bytes.
pub const HOST_CONFIG_MAX_BYTES: usize = 16 * 1024;

/// What a value is about, as the original tool divides them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigKind {
    /// What hosts may do.
    State,
    /// Which versions of programs hosts have.
    Version,
}

impl ConfigKind {
    /// Reads the kind as the generations of the original tool write it.
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "state" | "config_state" => Some(Self::State),
            "version" | "config_version" => Some(Self::Version),
            _ => None,
        }
    }

    /// Returns the name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::State => "config_state",
            Self::Version => "config_version",
        }
    }
}

/// The hosts for which a value is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigScope {
    Global,
    /// The hosts of a role; see [`role_of`].
    Role(Role),
    Host(HostName),
}

impl ConfigScope {
    /// Returns the scopes that contain a host, the widest first.
    pub fn of_host(host: &HostName) -> Vec<Self> {
        let role = role_of(host).map(Self::Role);
        [Self::Global].into_iter().chain(role).chain([Self::Host(host.clone())]).collect()
    }

    /// Returns the part of a key that names the scope.
    pub fn path(&self) -> String {
        match self {
            Self::Global => "global".into(),
            Self::Role(role) => format!("role/{role}"),
            Self::Host(host) => format!("host/{host}"),
        }
    }

    /// Reads the part of a key that names the scope. Returns the scope and what follows.
    pub fn read(text: &str) -> Option<(Self, &str)> {
        let (kind, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
        if kind == "global" {
            return Some((Self::Global, rest));
        }
        let rest = rest.strip_prefix('/')?;
        let (name, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let scope = match kind {
            "role" => Self::Role(Role::new(name).ok()?),
            "host" => Self::Host(HostName::new(name).ok()?),
            _ => return None,
        };
        Some((scope, rest))
    }
}

/// Returns the role of a host as the original tool takes it from the name: the first lower-case letters
/// that a digit follows. The roster may name another role; limits and freezes go by that one.
pub fn role_of(host: &HostName) -> Option<Role> {
    let name = host.as_str();
    let digit = name.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| &name[..at]);
    let letters = |text: &'_ str| text.len() - text.trim_end_matches(|c: char| c.is_ascii_lowercase()).len();
    let before = digit.into_iter().find(|text| letters(text) > 0)?;
    Role::new(&before[before.len() - letters(before)..]).ok()
}

/// Reads a value of the store.
///
/// # Errors
/// Returns the rule that the value breaks.
pub fn read_value(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the value is not UTF-8")?;
    check_value(text).map(|()| text)
}

/// Checks a value before it is written.
///
/// # Errors
/// Returns the rule that the value breaks.
pub fn check_value(text: &str) -> Result<(), &'static str> {
    if text.len() > HOST_CONFIG_MAX_BYTES {
        return Err("the value is longer than 16 KiB");
    }
    // `echo True | etcdctl put` stores the newline.
    if text.trim_end_matches('\n').chars().any(char::is_control) {
        return Err("the value has control characters");
    }
    Ok(())
}

/// True if a value of `enable_puppet` lets hosts run. Whatever is not `True` holds them, so that a value
/// that nobody understands starts nothing.
pub fn enables(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim().trim_matches('"').eq_ignore_ascii_case("true")
}

/// Returns the value of `enable_puppet` as the original tool writes it.
pub const fn enable_value(enables: bool) -> &'static str {
    if enables { "True" } else { "False" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_the_letters_before_the_number() {
        for (name, role) in [
            ("cp12", Some("cp")),
            ("cp1-paas.example.org", Some("cp")),
            ("node1.jiocloud.com", Some("node")),
            ("g-cp1", Some("cp")),
            ("1a2", Some("a")),
            ("Web1", Some("eb")),
            ("web-1", None),
            ("bootstrap", None),
            ("10", None),
        ] {
            let found = role_of(&HostName::new(name).unwrap());
            assert_eq!(found.as_ref().map(Role::as_str), role, "{name}");
        }
    }

    #[test]
    fn only_true_enables() {
        for (value, expected) in [
            (&b"True"[..], true),
            (b"true\n", true),
            (b"\"True\"", true),
            (b"False", false),
            (b"", false),
            (b"1", false),
            (b"untrue", false),
            (b"\xff", false),
        ] {
            assert_eq!(enables(value), expected, "{value:?}");
        }
        assert!(enables(enable_value(true).as_bytes()) && !enables(enable_value(false).as_bytes()));
    }

    #[test]
    fn values_are_bounded_text() {
        for good in ["", "True", "True\n", "a b=c", "größe"] {
            assert_eq!(read_value(good.as_bytes()), Ok(good));
        }
        for bad in ["a\nb", "\u{1b}[2J", &"x".repeat(HOST_CONFIG_MAX_BYTES + 1)] {
            check_value(bad).unwrap_err();
        }
        read_value(b"\xff").unwrap_err();
    }
}
