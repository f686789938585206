//! Validated names. Text from an operator, a file, the store or the network becomes one of these
//! types before it is used. For that reason every name can be part of a key, a path or a line of
//! output.
//!
//! This file is long because it holds every kind of name with its rule.
//!
//! Host names follow the DNS label rules of RFC 1123, section 2.1. A tag can be any printable text.
//! All other names share one character set.

use schemars::JsonSchema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Longest name, in bytes.
pub const NAME_MAX_BYTES: usize = 128;
/// Longest host name, in bytes (RFC 1035, section 2.3.4, without the root dot).
pub const HOST_NAME_MAX_BYTES: usize = 253;
/// Longest label of a host name, in bytes.
pub const HOST_LABEL_MAX_BYTES: usize = 63;

/// The error of a name that breaks a rule: the kind of name, the rule, and the offending text,
/// escaped and cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {shown}: {rule}")]
pub struct NameError {
    what: &'static str,
    shown: String,
    rule: &'static str,
}

impl NameError {
    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        Self { what, shown: quoted(text), rule }
    }

    /// Returns the rule that was broken, in words.
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}

/// Returns text from outside in a form that is safe in a message: quoted, with control characters
/// escaped, at most 64 characters of the text.
pub fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

const NAME_RULE: &str = "must be 1 to 128 of A-Z a-z 0-9 . _ + ~ : - and begin with a letter or a digit";

fn check_name(what: &'static str, text: &str) -> Result<(), NameError> {
    let mut bytes = text.bytes();
    let first_is_fine = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest_is_fine = bytes.all(|b| b.is_ascii_alphanumeric() || b"._+~:-".contains(&b));
    if first_is_fine && rest_is_fine && text.len() <= NAME_MAX_BYTES {
        Ok(())
    } else {
        Err(NameError::new(what, text, NAME_RULE))
    }
}

fn check_host(what: &'static str, text: &str) -> Result<(), NameError> {
    let label_is_fine = |label: &str| {
        !label.is_empty()
            && label.len() <= HOST_LABEL_MAX_BYTES
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !text.is_empty() && text.len() <= HOST_NAME_MAX_BYTES && text.split('.').all(label_is_fine) {
        Ok(())
    } else {
        Err(NameError::new(
            what,
            text,
            "must be DNS labels: 1 to 63 of A-Z a-z 0-9 and inner hyphens each, separated by dots",
        ))
    }
}

fn check_event_id(what: &'static str, text: &str) -> Result<(), NameError> {
    let parts = text.split_once('-');
    let is_id = |(millis, random)| {
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let (millis, random): (&str, &str) = (millis, random);
        !millis.is_empty() && plain(millis) && millis.parse::<u64>().is_ok() && check_name("", random).is_ok()
    };
    if text.len() <= NAME_MAX_BYTES && parts.is_some_and(is_id) {
        Ok(())
    } else {
        Err(NameError::new(what, text, "must be milliseconds, a hyphen and a token"))
    }
}

/// Longest tag, in bytes.
pub const TAG_MAX_BYTES: usize = 512;

fn check_tag(what: &'static str, text: &str) -> Result<(), NameError> {
    // `escape_debug` escapes these three characters although they are printable.
    let is_printable = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1;
    let is_bounded = !text.is_empty() && text.len() <= TAG_MAX_BYTES;
    if is_bounded && text.trim() == text && text.chars().all(is_printable) {
        Ok(())
    } else {
        let rule = "must be 1 to 512 bytes of printable characters, with blanks only between them";
        Err(NameError::new(what, text, rule))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $check:ident) => {
        $(#[$doc])*
        /// Cloning is cheap: clones share the text.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
        #[schemars(with = "String", description = "")]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks the text against the rule of this kind of name, and keeps it.
            ///
            /// # Errors
            /// Returns the rule that the text breaks.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                $check($what, text)?;
                Ok(Self(text.into()))
            }

            /// Checks text without keeping it.
            ///
            /// # Errors
            /// Returns the same errors as `new`.
            pub fn check(text: &str) -> Result<(), NameError> {
                $check($what, text)
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

        impl std::str::FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        // A visitor avoids a second copy of the text: there are as many names as keys in the store.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a {}", $what)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        $type::new(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

name!(
    /// A version of the fleet's configuration, as an operator triggers it.
    Version,
    "version",
    check_name
);
name!(
    /// The name under which a host is known in the fleet.
    HostName,
    "host name",
    check_host
);
name!(
    /// The role of a host, or a group of hosts.
    Role,
    "role",
    check_name
);
name!(
    /// The name of a service that hosts publish.
    ServiceName,
    "service",
    check_name
);
name!(
    /// The name that the operating system gives to a network interface.
    InterfaceName,
    "interface",
    check_name
);
name!(
    /// A tag of an instance. Other programs read whole settings from tags
    /// (`traefik.http.routers.web.rule=Host(...)`), so a tag is free text and not a name.
    Tag,
    "tag",
    check_tag
);
name!(
    /// The id of a check, unique on its host.
    CheckId,
    "check",
    check_name
);
name!(
    /// The type of a status that hosts report: `provisioned`, `puppet`, `validation`, or one that
    /// the site defines.
    StatusType,
    "status type",
    check_name
);
name!(
    /// The name of one step of a phase.
    StepName,
    "step name",
    check_name
);

name!(
    /// The name of a label of hosts.
    LabelName,
    "label",
    check_name
);
name!(
    /// A role, a group or the value of a label, by which a limit counts hosts.
    LimitValue,
    "value",
    check_name
);
name!(
    /// The name of a stage of rollouts.
    StageName,
    "stage",
    check_name
);
name!(
    /// The name of a value that operators keep in the store.
    ConfigName,
    "name of a value",
    check_name
);
name!(
    /// An opaque random token that identifies a lineage, an agent or a run, for example.
    Token,
    "token",
    check_name
);

fn check_fingerprint(what: &'static str, text: &str) -> Result<(), NameError> {
    let is_digit = |b: u8| b.is_ascii_digit();
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let parts = text.strip_prefix('f').and_then(|rest| rest.split_once('-'));
    let fits = parts.is_some_and(|(version, hash)| {
        (1..=3).contains(&version.len())
            && version.bytes().all(is_digit)
            && hash.len() == 12
            && hash.bytes().all(is_hex)
    });
    if fits { Ok(()) } else { Err(NameError::new(what, text, "must be f1- and 12 hexadecimal digits")) }
}

name!(
    /// What the causes of failures are compared by: the version of the algorithm and a part of a hash, for example
    /// `f1-0123456789ab`.
    Fingerprint,
    "fingerprint",
    check_fingerprint
);

name!(
    /// The id of an event: the milliseconds since the Unix epoch by the clock of the operator's
    /// machine, a hyphen, and a random token.
    EventId,
    "event id",
    check_event_id
);

impl EventId {
    /// Returns the id of an event at this time, in milliseconds since the Unix epoch.
    pub fn of(millis: u64, random: &Token) -> Self {
        let text: String = format!("{millis}-{random}").chars().take(NAME_MAX_BYTES).collect();
        Self(text.into())
    }

    /// Returns the time in the id, in milliseconds since the Unix epoch.
    pub fn millis(&self) -> u64 {
        self.0.split_once('-').and_then(|(millis, _)| millis.parse().ok()).unwrap_or(0)
    }
}

impl HostName {
    /// Returns the name that a text from outside means: an operator's, a file's or the machine's own. DNS does
    /// not tell capitals from small letters (RFC 4343), so the name is in lower case. [`HostName::new`] keeps
    /// the spelling: a key with capitals is one that an agent before this rule wrote.
    ///
    /// # Errors
    /// Returns the same errors as [`HostName::new`].
    pub fn folded(text: impl AsRef<str>) -> Result<Self, NameError> {
        Self::new(text).map(|name| name.to_lower())
    }

    /// Returns the name in lower case.
    #[must_use]
    pub fn to_lower(&self) -> Self {
        if self.has_capitals() { Self(self.0.to_ascii_lowercase().into()) } else { self.clone() }
    }

    /// True if the name is not in lower case.
    pub fn has_capitals(&self) -> bool {
        self.0.bytes().any(|byte| byte.is_ascii_uppercase())
    }
}

impl ServiceName {
    /// True if the name can be one label of a DNS name, also with `_` in front of it (RFC 2782).
    pub fn is_label(&self) -> bool {
        self.0.len() < HOST_LABEL_MAX_BYTES && !self.0.contains('.')
    }
}

impl Tag {
    /// True if the tag can be one label of a DNS name.
    pub fn is_label(&self) -> bool {
        self.0.len() <= HOST_LABEL_MAX_BYTES && !self.0.contains('.') && check_name("", &self.0).is_ok()
    }
}

impl StepName {
    /// Returns the name of the step that represents the validation directory itself, for example
    /// when the directory cannot be read.
    pub fn directory() -> Self {
        Self("validation-directory".into())
    }
}

impl ConfigName {
    /// Returns the name of the value by which the original tool keeps hosts from running their scripts.
    pub fn enable_puppet() -> Self {
        Self("enable_puppet".into())
    }
}

impl StageName {
    /// Returns the name of the stage of all hosts that no other stage selects. It comes last.
    pub fn rest() -> Self {
        Self("rest".into())
    }
}

impl StatusType {
    /// Returns the type for the apply phase, whatever tool runs it; `puppet` is its historical
    /// name.
    pub fn apply() -> Self {
        Self("puppet".into())
    }

    /// Returns the type for the validate phase.
    pub fn validation() -> Self {
        Self("validation".into())
    }

    /// Returns the type that says that a host was created. It is written by the program that
    /// creates the host, and by the host's agent when it proves a version for the first time.
    pub fn provisioned() -> Self {
        Self("provisioned".into())
    }

    /// Returns the types that an agent writes.
    pub fn of_agents() -> [Self; 3] {
        [Self::apply(), Self::validation(), Self::provisioned()]
    }

    /// Parses a type as an old caller writes it: `puppet_service` and `validation_service` are old
    /// names.
    ///
    /// # Errors
    /// Returns the same errors as [`StatusType::new`].
    pub fn from_caller(text: &str) -> Result<Self, NameError> {
        Self::new(match text {
            "puppet_service" => "puppet",
            "validation_service" => "validation",
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_version_keeps_to_one_character_set() {
        for good in ["1", "v43", "2026.11.21-1", "1.0~rc1+build:7", "a_b", &"x".repeat(128)] {
            assert_eq!(Version::new(good).unwrap().as_str(), good);
        }
        for bad in ["", " ", "a b", "a\n", "a\0", "/", "../x", ".", "..", "-x", "é", "a/b", &"x".repeat(129)]
        {
            let error = Version::new(bad).unwrap_err().to_string();
            assert!(error.contains("must be 1 to 128"), "{bad:?}: {error}");
            assert!(!error.contains('\n') && !error.contains('\0'), "not escaped: {error:?}");
        }
    }

    #[test]
    fn a_tag_is_text_and_some_are_labels() {
        for (tag, is_label) in [
            ("v1", true),
            ("a_b:c", true),
            (&"x".repeat(63), true),
            (&"x".repeat(64), false),
            ("1.0", false),
            ("traefik.enable=true", false),
            ("urlprefix-/foo strip=/foo", false),
            ("rule=Host(`a.b`) && Path(\"/x\") || 'y' \\ {{ x }} %{y}", false),
            ("größe", false),
            (&"=".repeat(512), false),
        ] {
            assert_eq!(Tag::new(tag).unwrap().is_label(), is_label, "{tag}");
        }
        let long = "x".repeat(513);
        for bad in
            ["", " ", " a", "a ", "a\nb", "a\tb", "a\0", "a\u{1b}[0m", "a\u{202e}b", "a\u{2028}b", &long]
        {
            let error = Tag::new(bad).unwrap_err().to_string();
            assert!(error.contains("must be 1 to 512"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_host_name_follows_the_label_rules() {
        for good in ["a", "web-1", "web-1.example.org", "10", &"x".repeat(63)] {
            HostName::new(good).unwrap();
        }
        for bad in ["", ".", "a.", ".a", "a..b", "-a", "a-", "a_b", "a/b", &"x".repeat(64), &"x.".repeat(130)]
        {
            HostName::new(bad).unwrap_err();
        }
    }

    #[test]
    fn a_host_name_from_outside_is_in_lower_case() {
        for (text, name) in [("WEB1", "web1"), ("Web-1.Example.org", "web-1.example.org"), ("web1", "web1")] {
            assert_eq!(HostName::folded(text).unwrap().as_str(), name);
            assert_eq!(HostName::new(text).unwrap().as_str(), text);
        }
        HostName::folded("-A").unwrap_err();
    }

    #[test]
    fn old_names_of_status_types_mean_the_same() {
        assert_eq!(StatusType::from_caller("puppet_service").unwrap(), StatusType::apply());
        assert_eq!(StatusType::from_caller("validation_service").unwrap(), StatusType::validation());
        assert_eq!(StatusType::from_caller("provisioned").unwrap().as_str(), "provisioned");
    }

    proptest! {
        #[test]
        fn an_accepted_name_never_needs_quoting(text in ".{0,140}") {
            if let Ok(version) = Version::new(text.clone()) {
                let unsafe_characters = ['/', ' ', '\n', '\'', '"', '$', '%', '{'];
                prop_assert!(!version.as_str().contains(unsafe_characters));
                prop_assert!(version.as_str() != "." && version.as_str() != "..");
            }
            let shown = quoted(&text);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
