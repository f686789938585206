//! Variables in a text: `$NAME`, `${NAME}`, `${NAME:-default}` and the other forms of Compose.

use crate::limits::VARIABLE_DEPTH_MAX;
use schema::names::quoted;
use std::collections::{BTreeMap, BTreeSet};

/// A text with its variables replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    /// The variables that have neither a value nor a default. They count as empty.
    pub(crate) unset: BTreeSet<String>,
}

/// Why a text cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotExpanded {
    pub(crate) what: String,
    pub(crate) right: String,
}

/// Replaces the variables in a text. `limit` bounds the length of the result.
pub(crate) fn expand(
    text: &str,
    values: &BTreeMap<String, String>,
    limit: usize,
) -> Result<Expanded, NotExpanded> {
    let mut expansion = Expansion { rest: text, values, limit, unset: BTreeSet::new() };
    let text = expansion.until_end(0, true)?;
    Ok(Expanded { text, unset: expansion.unset })
}

struct Expansion<'a> {
    rest: &'a str,
    values: &'a BTreeMap<String, String>,
    limit: usize,
    unset: BTreeSet<String>,
}

/// What stands behind the name of a variable in braces.
#[derive(Clone, Copy)]
enum Form {
    /// `-`: the text behind it is used if there is no value.
    Default,
    /// `+`: the text behind it is used if there is a value.
    Alternative,
    /// `?`: there has to be a value, and the text behind it says why.
    Required,
}

impl<'a> Expansion<'a> {
    /// Expands up to the end of the text, or up to the brace that ends a variable if `depth` is not zero. A part that
    /// is not `used` is read and has no effect.
    fn until_end(&mut self, depth: usize, used: bool) -> Result<String, NotExpanded> {
        let mut text = String::new();
        let mut braces = 0_usize;
        while let Some(next) = self.rest.chars().next() {
            match next {
                '$' => {
                    let value = self.variable(depth, used)?;
                    self.add(&mut text, &value)?;
                    continue;
                }
                '}' if depth > 0 && braces == 0 => return Ok(text),
                '}' => braces = braces.saturating_sub(1),
                '{' => braces += 1,
                _ => {}
            }
            self.rest = &self.rest[next.len_utf8()..];
            text.push(next);
        }
        if depth > 0 { Err(not_closed()) } else { Ok(text) }
    }

    fn add(&self, text: &mut String, value: &str) -> Result<(), NotExpanded> {
        if text.len() + value.len() > self.limit {
            return Err(NotExpanded {
                what: "the text is too long with the values of its variables".to_owned(),
                right: "use shorter values".to_owned(),
            });
        }
        text.push_str(value);
        Ok(())
    }

    /// Expands what begins with `$`.
    fn variable(&mut self, depth: usize, used: bool) -> Result<String, NotExpanded> {
        self.rest = &self.rest[1..];
        if let Some(rest) = self.rest.strip_prefix('$') {
            self.rest = rest;
            return Ok("$".to_owned());
        }
        if let Some(rest) = self.rest.strip_prefix('{') {
            self.rest = rest;
            return self.braced(depth + 1, used);
        }
        match self.name() {
            Some(name) => Ok(self.plain(name, used)),
            None => Ok("$".to_owned()),
        }
    }

    fn braced(&mut self, depth: usize, used: bool) -> Result<String, NotExpanded> {
        if depth > VARIABLE_DEPTH_MAX {
            return Err(NotExpanded {
                what: format!("variables are nested more than {VARIABLE_DEPTH_MAX} deep"),
                right: "write fewer defaults inside of defaults".to_owned(),
            });
        }
        let Some(name) = self.name() else { return Err(self.wrong_form()) };
        if let Some(rest) = self.rest.strip_prefix('}') {
            self.rest = rest;
            return Ok(self.plain(name, used));
        }
        let (rest, empty_counts_as_unset) = match self.rest.strip_prefix(':') {
            Some(rest) => (rest, true),
            None => (self.rest, false),
        };
        let form = match rest.chars().next() {
            Some('-') => Form::Default,
            Some('+') => Form::Alternative,
            Some('?') => Form::Required,
            Some(_) => return Err(self.wrong_form()),
            None => return Err(not_closed()),
        };
        self.rest = &rest[1..];
        let value = self.values.get(name).filter(|value| !(empty_counts_as_unset && value.is_empty()));
        let operand_is_used = match form {
            Form::Default | Form::Required => value.is_none(),
            Form::Alternative => value.is_some(),
        };
        let operand = self.until_end(depth, used && operand_is_used)?;
        self.rest = self.rest.strip_prefix('}').unwrap_or(self.rest);
        match (form, value) {
            (Form::Default | Form::Required, Some(value)) => Ok(value.clone()),
            (Form::Default, None) | (Form::Alternative, Some(_)) => Ok(operand),
            (Form::Alternative, None) => Ok(String::new()),
            (Form::Required, None) if !used => Ok(String::new()),
            (Form::Required, None) => Err(missing(name, &operand)),
        }
    }

    /// Takes the name of a variable from the text.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest;
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let begins_well = !rest.starts_with(|c: char| c.is_ascii_digit());
        if end == 0 || !begins_well {
            return None;
        }
        self.rest = &rest[end..];
        Some(&rest[..end])
    }

    fn plain(&mut self, name: &str, used: bool) -> String {
        let value = self.values.get(name);
        if value.is_none() && used {
            self.unset.insert(name.to_owned());
        }
        value.cloned().unwrap_or_default()
    }

    fn wrong_form(&self) -> NotExpanded {
        let shown: String = self.rest.chars().take(16).collect();
        NotExpanded {
            what: format!("a variable has a wrong form before {}", quoted(&shown)),
            right:
                "write ${NAME}, ${NAME:-default}, ${NAME:?reason} or ${NAME:+text}, and $$ for a dollar sign"
                    .to_owned(),
        }
    }
}

fn not_closed() -> NotExpanded {
    NotExpanded {
        what: "a variable has no closing brace".to_owned(),
        right: "write ${NAME}, and $$ for a dollar sign".to_owned(),
    }
}

fn missing(name: &str, reason: &str) -> NotExpanded {
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    NotExpanded {
        what: format!("the variable {name} has no value{reason}"),
        right: format!("set {name} in the environment of the command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> BTreeMap<String, String> {
        let all = [("A", "a"), ("EMPTY", ""), ("DOLLAR", "$A")];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn every_form_of_compose_is_expanded() {
        for (text, expected) in [
            ("plain", "plain"),
            ("$A", "a"),
            ("${A}", "a"),
            ("x${A}y$A.z", "xaya.z"),
            ("$$A", "$A"),
            ("$${A}", "${A}"),
            ("cost 5$", "cost 5$"),
            ("$1 $- $ü", "$1 $- $ü"),
            ("${A:-d}", "a"),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY-d}", ""),
            ("${NONE-d}", "d"),
            ("${NONE:-}", ""),
            ("${A:+x}", "x"),
            ("${EMPTY:+x}", ""),
            ("${EMPTY+x}", "x"),
            ("${NONE+x}", ""),
            ("${A:?why}", "a"),
            ("${EMPTY?why}", ""),
            ("${NONE:-${A}}", "a"),
            ("${NONE:-${OTHER:-d}}", "d"),
            ("${A:-${OTHER:?never used}}", "a"),
            ("${NONE:-{\"a\": {}}}", "{\"a\": {}}"),
            ("$DOLLAR", "$A"),
            ("{}}", "{}}"),
        ] {
            let expanded = expand(text, &values(), 1_000).expect(text);
            assert_eq!((expanded.text.as_str(), expanded.unset.len()), (expected, 0), "{text}");
        }
    }

    #[test]
    fn a_variable_without_a_value_is_named() {
        for (text, expected) in [("$NONE", "NONE"), ("x${NONE}", "NONE"), ("${NONE:-$OTHER}", "OTHER")] {
            let expanded = expand(text, &values(), 1_000).expect(text);
            assert_eq!(expanded.unset.into_iter().collect::<Vec<_>>(), [expected], "{text}");
        }
    }

    #[test]
    fn a_wrong_form_is_a_mistake() {
        let deep = "${A:-".repeat(100);
        for (text, expected) in [
            ("${NONE:?say which}", "the variable NONE has no value: say which"),
            ("${NONE?}", "the variable NONE has no value"),
            ("${NONE:-${OTHER?no}}", "the variable OTHER has no value: no"),
            ("${}", "a variable has a wrong form before \"}\""),
            ("${1}", "a variable has a wrong form before \"1}\""),
            ("${A/b/c}", "a variable has a wrong form before \"/b/c}\""),
            ("${A:b}", "a variable has a wrong form before \":b}\""),
            ("${A", "a variable has no closing brace"),
            ("${A:-b", "a variable has no closing brace"),
            (&deep, "variables are nested more than 16 deep"),
        ] {
            assert_eq!(expand(text, &values(), 1_000).expect_err(text).what, expected, "{text}");
        }
    }

    #[test]
    fn a_long_value_does_not_multiply_without_limit() {
        let values = BTreeMap::from([("A".to_owned(), "x".repeat(100))]);
        let error = expand(&"$A".repeat(100), &values, 1_000).expect_err("too long");
        assert!(error.what.contains("too long"), "{error:?}");
    }

    proptest! {
        #[test]
        fn an_arbitrary_text_never_panics(text in r"(\$|\{|\}|:|-|\?|\+|A|EMPTY|.){0,40}") {
            let _ = expand(&text, &values(), 100);
        }

        #[test]
        fn a_text_without_dollar_signs_stays(text in r"[^$]{0,60}") {
            prop_assert_eq!(expand(&text, &values(), 1_000).map(|expanded| expanded.text), Ok(text));
        }
    }
}
