//! Says what a parser found wrong in words that somebody who writes a settings file knows.

use crate::text::nearest;
use schema::names::quoted;
use toml::de::DeValue;

/// Returns what is wrong with this value. `message` is the parser's.
pub(crate) fn in_plain_words(message: &str, value: Option<&DeValue<'_>>) -> String {
    let message = message.trim();
    let instead = value.map(|value| format!(", not {}", shown(value))).unwrap_or_default();
    if let Some(name) = missing_setting(message) {
        return format!("the setting `{name}` is missing");
    }
    if message.starts_with("unknown variant ") {
        let names: Vec<String> = in_backticks(message).skip(1).map(quoted).collect();
        return format!("must be {}{instead}", one_of(&names));
    }
    let expected = ["invalid type: ", "invalid value: ", "wanted "].iter().find_map(|start| {
        let rest = message.strip_prefix(start)?;
        Some(rest.split_once(", expected ").map_or(rest, |(_, expected)| expected))
    });
    // The standard library says of an address only that it has the wrong form.
    let expected =
        expected.or_else(|| message.strip_prefix("invalid ").and_then(|what| what.strip_suffix(" syntax")));
    match expected {
        Some(expected) => format!("must be {}{instead}", right(expected)),
        None => message.to_owned(),
    }
}

/// Returns the name of the setting of which the parser says that it is missing.
pub(crate) fn missing_setting(message: &str) -> Option<&str> {
    message.trim().strip_prefix("missing field ").map(|name| name.trim_matches('`'))
}

/// Returns what to say if the parser does not know a setting: the nearest one that it knows, or all
/// if none is near.
pub(crate) fn unknown_setting(message: &str) -> Option<String> {
    let rest = message.trim().strip_prefix("unknown field ")?;
    let mut names = in_backticks(rest);
    let unknown = names.next()?;
    let known: Vec<&str> = names.collect();
    Some(match nearest(unknown, known.iter().copied()) {
        Some(nearest) => format!("unknown setting `{unknown}`; did you mean `{nearest}`?"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("unknown setting `{unknown}`; here can stand {}", known.join(", "))
        }
    })
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn one_of(names: &[String]) -> String {
    match names {
        [] => "another word".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns what would be right, for what the parser expects.
fn right(expected: &str) -> String {
    let whole = |most: u64| format!("a whole number from 0 to {most}");
    match expected {
        "a string" | "string" | "str" => "text in quotes".into(),
        "path string" => "a path in quotes".into(),
        "string or table" | "string or map" => "one of the words of this setting, in quotes".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list in brackets".into(),
        "a map" => "a table".into(),
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".into(),
        "socket address" => "an IP address with a port, as in \"127.0.0.1:8580\"".into(),
        "IP address" => "an IP address, as in \"10.0.0.5\"".into(),
        name if name.starts_with("struct ") => "a table".into(),
        // The types of this project say what they expect.
        own => own.to_owned(),
    }
}

/// Returns a value as it stands in the file, if it is short.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_a_parser_is_left() {
        let text = DeValue::String("x".into());
        for (message, value, expected) in [
            ("invalid type: integer `5`, expected a string", None, "must be text in quotes"),
            ("invalid value: integer `70000`, expected u16", None, "must be a whole number from 0 to 65535"),
            (
                "invalid socket address syntax",
                Some(&text),
                "must be an IP address with a port, as in \"127.0.0.1:8580\", not \"x\"",
            ),
            (
                "invalid IP address syntax",
                Some(&text),
                "must be an IP address, as in \"10.0.0.5\", not \"x\"",
            ),
            (
                "unknown variant `x`, expected one of `a`, `b`, `c`",
                Some(&text),
                "must be \"a\", \"b\" or \"c\", not \"x\"",
            ),
            ("unknown variant `x`, expected `a` or `b`", None, "must be \"a\" or \"b\""),
            ("missing field `command`", None, "the setting `command` is missing"),
            ("a message of our own", None, "a message of our own"),
        ] {
            assert_eq!(in_plain_words(message, value), expected);
        }
    }

    #[test]
    fn an_unknown_setting_names_the_nearest_one_or_all() {
        let check = |message: &str, expected: &str| {
            assert_eq!(unknown_setting(message).as_deref(), Some(expected));
        };
        check(
            "unknown field `prot`, expected one of `port`, `tags`",
            "unknown setting `prot`; did you mean `port`?",
        );
        check(
            "unknown field `colour`, expected `port` or `tags`",
            "unknown setting `colour`; here can stand `port`, `tags`",
        );
        assert_eq!(unknown_setting("missing field `port`"), None);
    }
}
