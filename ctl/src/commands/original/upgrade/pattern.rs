//! The patterns by which `group_mappings` names roles. They are regular expressions; a pattern matches from the start of a
//! role and need not reach its end, as in the original.

use regex_lite::{Regex, RegexBuilder};

/// Largest program of a pattern, in bytes. A match takes a time that grows with it.
const PATTERN_MAX_BYTES: usize = 64 * 1024;

/// A pattern that matches roles.
#[derive(Debug, Clone)]
pub(super) struct RolePattern(Regex);

impl PartialEq for RolePattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl RolePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        // By itself, so that it cannot close the group that begins before it.
        Regex::new(text).map_err(|error| error.to_string())?;
        let whole = RegexBuilder::new(&format!("^(?:{text})")).size_limit(PATTERN_MAX_BYTES).build();
        whole.map(Self).map_err(|error| error.to_string())
    }

    /// True if the role begins with what the pattern describes.
    pub(super) fn matches(&self, role: &str) -> bool {
        self.0.is_match(role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_from_the_begin_as_in_the_original() {
        for (pattern, role, expected) in [
            ("st.*", "stmon", true),
            ("st.*", "st", true),
            ("st.*", "gst", false),
            ("g?cp.*", "cp", true),
            ("g?cp.*", "gcp", true),
            ("g?cp.*", "ggcp", false),
            ("foo", "foobar", true),
            ("foo$", "foobar", false),
            ("^foo$", "foo", true),
            ("(oc|ocdb)$", "ocdb", true),
            ("a|b", "cb", false),
            ("", "web", true),
        ] {
            let read = RolePattern::read(pattern).unwrap();
            assert_eq!(read.matches(role), expected, "{pattern} {role}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for bad in ["*", "(", "a)|(b", "[", "a{1000}{1000}"] {
            RolePattern::read(bad).unwrap_err();
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = RolePattern::read(&("(a*)*".repeat(40) + "b")).unwrap();
        assert!(!pattern.matches(&"a".repeat(63)));
    }
}
