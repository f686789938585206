//! Whether single values of settings make sense. Each function says what is wrong and what would be
//! right.

use schema::names::quoted;

/// Checks an endpoint of the store: `host:port`, with or without `http://` or `https://`.
pub(super) fn endpoint(text: &str) -> Result<(), String> {
    let rest = match text.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        Some(_) => return Err(format!("{} begins with neither http:// nor https://", quoted(text))),
        None => text,
    };
    let place = rest.split('/').next().unwrap_or_default();
    let port = if place.ends_with(']') { None } else { place.rsplit_once(':').map(|(_, port)| port) };
    let has_bad_port = port.is_some_and(|port| port.parse::<u16>().is_err());
    if place.is_empty() || place.contains(char::is_whitespace) || has_bad_port {
        return Err(format!("{} must be a host and a port, as in \"https://etcd-1:2379\"", quoted(text)));
    }
    Ok(())
}

/// Checks a prefix of keys.
pub(super) fn namespace(text: &str) -> Result<(), String> {
    if text.is_empty() || (text.starts_with('/') && !text.ends_with('/')) {
        return Ok(());
    }
    Err(format!("must be empty or begin with a slash, without a slash at its end, not {}", quoted(text)))
}

/// Checks a level of the log, or the levels of a filter. The agent checks the rest of a filter.
pub(super) fn log_level(text: &str) -> Result<(), String> {
    let is_level = |word: &str| {
        let words = ["off", "error", "warn", "info", "debug", "trace"];
        words.iter().any(|level| level.eq_ignore_ascii_case(word))
            || matches!(word, "0" | "1" | "2" | "3" | "4" | "5")
    };
    // Fields of spans may contain anything, so they are left to the agent.
    let is_filter = text.contains(['=', ',']);
    let is_fine = if text.contains('[') {
        true
    } else if is_filter {
        let mut levels = text.split(',').filter_map(|directive| directive.rsplit_once('='));
        levels.all(|(_, level)| is_level(level.trim()))
    } else {
        is_level(text)
    };
    if is_fine {
        return Ok(());
    }
    Err(format!(
        "must be \"error\", \"warn\", \"info\", \"debug\" or \"trace\", or a filter such as \"info,agent=debug\", not {}",
        quoted(text)
    ))
}

/// Checks the exit codes of one meaning.
pub(super) fn exit_codes(codes: &[i32]) -> Result<(), String> {
    match codes.iter().find(|code| !(0..=255).contains(*code)) {
        Some(code) => Err(format!("{code} is no exit code: they are from 0 to 255")),
        None => Ok(()),
    }
}

/// Checks the name of a variable.
pub(super) fn variable(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{} is not the name of a variable", quoted(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(what: fn(&str) -> Result<(), String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(what(text), Ok(()), "{text}");
        }
        for text in bad {
            assert!(what(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_without_sense_are_refused() {
        check(
            endpoint,
            &["a", "a:1", "http://a:1", "https://[::1]:2379", "[::1]", "10.0.0.1:2379", "http://a:1/"],
            &["", "ftp://x", "http://", "a b:1", "a:", "a:99999", "https://a:port"],
        );
        check(namespace, &["", "/a", "/a/b"], &["a", "/a/", "/"]);
        check(
            log_level,
            &["info", "WARN", "3", "debug,hyper=trace", "agent=debug", "agent[span{a=b}]=info"],
            &["loud", "", "agent=loud", "info,agent=", "6"],
        );
        check(variable, &["A", "a b"], &["", "a=b", "a\0"]);
        assert_eq!(exit_codes(&[0, 255]), Ok(()));
        assert_eq!(exit_codes(&[0, 256]).unwrap_err(), "256 is no exit code: they are from 0 to 255");
        assert!(exit_codes(&[-1]).is_err());
    }
}
