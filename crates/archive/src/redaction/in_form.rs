//! Finds what has the form of a secret, though nobody knows it: passwords of URLs, values of names such as `password`,
//! logins of options, headers and private keys. What is no secret may have such a form too; it is removed as well.

use std::ops::Range;

/// Endings of names whose value is a secret right after `=`: `?token=…`, `PGPASSWORD=…`.
const ASSIGNED: [&str; 10] =
    ["password", "passwd", "passphrase", "pass", "pwd", "secret", "token", "apikey", "api_key", "api-key"];
/// Endings of names whose value is a secret after `:`, or after `=` between blanks. Short words count there.
const SAID: [&str; 8] =
    ["password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "api-key"];
/// Options whose value is a user and a password: `curl -u me:word`.
const LOGIN_OPTIONS: [&str; 5] = ["-u ", "--user ", "--user=", "--proxy-user ", "--proxy-user="];
/// Words before a token in a header.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];
/// Length of the shortest word after a scheme that is a token, in bytes. Shorter ones are words of a sentence.
const SHORTEST_TOKEN: usize = 16;

/// Returns the places of what has the form of a secret.
pub fn in_form(text: &str) -> impl Iterator<Item = Range<usize>> {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<Range<usize>> = passwords_of_urls(text).chain(assigned(text)).collect();
    found.extend(logins(text, &lower));
    found.extend(headers(text, &lower));
    found.extend(private_keys(text));
    found.into_iter().filter(|range| !range.is_empty())
}

fn passwords_of_urls(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(|(at, separator)| {
        let start = at + separator.len();
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'<>`".contains(c)).unwrap_or(rest.len());
        let login = rest[..end].rfind('@')?;
        let colon = rest[..login].find(':')?;
        Some(start + colon + 1..start + login)
    })
}

/// Returns the places of the values of names such as `password`.
fn assigned(text: &str) -> impl Iterator<Item = Range<usize>> {
    // What stands in a value is removed with it.
    let mut covered = 0;
    text.match_indices(['=', ':']).filter_map(move |(at, separator)| {
        if at < covered {
            return None;
        }
        let is_blank = |c: char| c == ' ' || c == '\t';
        let head = text[..at].trim_end_matches(is_blank);
        let rest = text[at + 1..].trim_start_matches(is_blank);
        let is_tight = separator == "=" && head.len() == at && rest.len() == text.len() - at - 1;
        // A blank after `=` ends an empty value, as in a command line, unless there is one before it too.
        if separator == "=" && !is_tight && head.len() == at {
            return None;
        }
        let head = head.trim_end_matches(['"', '\'', '\\']);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c);
        let name = head.rsplit(is_end).next()?.to_ascii_lowercase();
        let names: &[&str] = if is_tight { &ASSIGNED } else { &SAID };
        if !names.iter().any(|ending| name.ends_with(ending)) {
            return None;
        }
        let value = value(text, text.len() - rest.len());
        covered = value.end;
        Some(value)
    })
}

/// Returns the place of a value that begins here, without its quotes.
fn value(text: &str, start: usize) -> Range<usize> {
    let rest = &text[start..];
    // In a text that is quoted itself, a quote has a backslash.
    let is_escaped = rest.starts_with("\\\"");
    let quote = rest[usize::from(is_escaped)..].chars().next().filter(|c| "\"'".contains(*c));
    let Some(quote) = quote else {
        let is_end = |c: char| c.is_whitespace() || "&;,\"'<>)".contains(c);
        return start..start + rest.find(is_end).unwrap_or(rest.len());
    };
    let start = start + usize::from(is_escaped) + 1;
    let rest = &text[start..];
    if is_escaped {
        return start..start + rest.find("\\\"").unwrap_or(rest.len());
    }
    let mut is_next_escaped = false;
    let end = rest.char_indices().find(|(_, c)| {
        let is_end = *c == quote && !is_next_escaped;
        is_next_escaped = *c == '\\' && quote == '"' && !is_next_escaped;
        is_end
    });
    start..start + end.map_or(rest.len(), |(at, _)| at)
}

/// Returns the places of passwords in options such as `-u`.
fn logins<'a>(text: &'a str, lower: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    LOGIN_OPTIONS.iter().flat_map(move |option| {
        // The password of a word is all that follows its first colon, so options in the word hide nothing else.
        let mut covered = 0;
        lower.match_indices(option).filter_map(move |(at, _)| {
            let is_word =
                text[..at].chars().next_back().is_none_or(|c| c.is_whitespace() || "\"'`(,[".contains(c));
            if at < covered || !is_word {
                return None;
            }
            let word = value(text, at + option.len());
            covered = word.end;
            let colon = text[word.clone()].find(':')?;
            Some(word.start + colon + 1..word.end)
        })
    })
}

/// Returns the places of what stands in a header `Authorization`, and of tokens after the name of a scheme.
fn headers<'a>(text: &'a str, lower: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    // What stands in one header is removed with it, and not looked at again.
    let mut covered = 0;
    let credentials = lower.match_indices("authorization").filter_map(move |(at, name)| {
        if at < covered {
            return None;
        }
        let rest = lower[at + name.len()..].trim_start_matches(['"', '\'', '\\', ' ']);
        let rest = rest.strip_prefix([':', '='])?.trim_start_matches(['"', '\'', '\\', ' ']);
        let start = text.len() - rest.len();
        let end = start + rest.find(['\n', '\r', '"', '\'']).unwrap_or(rest.len());
        covered = end;
        // The scheme stays, because it tells what is wrong if it is the wrong one.
        let scheme = text[start..end].find(' ').map_or(0, |blank| blank + 1);
        Some(start + scheme..end)
    });
    let tokens = SCHEMES.iter().flat_map(move |scheme| {
        lower.match_indices(scheme).filter_map(move |(at, _)| {
            let start = at + scheme.len();
            let is_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
            let rest = &text[start..];
            let length = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
            (length >= SHORTEST_TOKEN).then_some(start..start + length)
        })
    });
    credentials.chain(tokens)
}

/// Returns the places of private keys as PEM, also of those of which an end is missing.
fn private_keys(text: &str) -> impl Iterator<Item = Range<usize>> {
    const MARK: &str = "PRIVATE KEY-----";
    // Everything is looked at once, however many marks a line has: what is before the last mark belongs to it, and what
    // has no end has none further on.
    let (mut covered, mut last_mark, mut has_end) = (0, 0, true);
    text.match_indices(MARK).filter_map(move |(at, mark)| {
        if at < covered {
            return None;
        }
        let after = at + mark.len();
        let from = covered.max(std::mem::replace(&mut last_mark, after));
        let line = text[from..at].rfind(['\n', '\r']).map_or(from, |end| from + end + 1);
        if text[line..at].contains("-----BEGIN ") {
            let rest = &text[after..];
            let end = if has_end { rest.find("-----END ") } else { None };
            has_end = end.is_some();
            covered = after + end.unwrap_or_else(|| key_length(rest));
            let range = after..covered;
            // Past the mark at its end, which is no begin.
            if has_end {
                covered += text[covered..].find(MARK).map_or(0, |at| at + 1);
            }
            return Some(range);
        }
        let end = line + text[line..at].rfind("-----END ")?;
        let lines = text[from..end].split_inclusive('\n').rev();
        let length: usize = lines.take_while(|line| is_of_key(line)).map(str::len).sum();
        Some(end - length..end)
    })
}

/// Returns the length of the lines at the start of a text that may belong to a key. What comes after the first character
/// of another kind is not looked at.
fn key_length(text: &str) -> usize {
    let mut length = 0;
    while length < text.len() {
        let rest = &text[length..];
        let is_other = |c: char| !c.is_ascii_alphanumeric() && !"+/=\r \t".contains(c);
        let line = rest.trim_start_matches([' ', '\t', '\r']);
        let is_header = HEADERS.iter().any(|header| line.starts_with(header));
        let stop = if is_header { rest.find('\n') } else { rest.find(is_other) };
        let end = match stop {
            Some(at) if rest.as_bytes()[at] == b'\n' => at + 1,
            None => rest.len(),
            Some(_) => break,
        };
        if !is_of_key(&rest[..end]) {
            break;
        }
        length += end;
    }
    length
}

/// Lines of a key that are no part of its value.
const HEADERS: [&str; 2] = ["Proc-Type:", "DEK-Info:"];

/// True if a line may belong to a key.
fn is_of_key(line: &str) -> bool {
    let line = line.trim();
    line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
        || HEADERS.iter().any(|header| line.starts_with(header))
}
