//! The values that operators keep in the store for templates and gates of hosts: `/orchestrate/config/<name>`.

/// Longest value, in bytes.
pub const CONFIG_VALUE_MAX_BYTES: usize = 16 * 1024;

/// The rule that a value breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigValueError {
    #[error("it has {0} bytes; at most {CONFIG_VALUE_MAX_BYTES} are allowed")]
    Long(usize),
    #[error("it is not UTF-8")]
    NotText,
    #[error("it has the control character {0:?}")]
    Control(char),
}

/// Checks a value, and returns it as text. It may have several lines, and tabs.
///
/// # Errors
/// Returns the rule that the value breaks.
pub fn config_value(bytes: &[u8]) -> Result<&str, ConfigValueError> {
    if bytes.len() > CONFIG_VALUE_MAX_BYTES {
        return Err(ConfigValueError::Long(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ConfigValueError::NotText)?;
    match text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        Some(control) => Err(ConfigValueError::Control(control)),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_text_of_a_few_lines() {
        let check = |bytes: &[u8], expected: Result<&str, &str>| {
            let found = config_value(bytes).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        check(b"", Ok(""));
        check(b"a\tb\nc\n", Ok("a\tb\nc\n"));
        check(b"a\x1bb", Err("it has the control character '\\u{1b}'"));
        check(b"\xff", Err("it is not UTF-8"));
        check(&[b'x'; CONFIG_VALUE_MAX_BYTES + 1], Err("it has 16385 bytes; at most 16384 are allowed"));
    }
}
