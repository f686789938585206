//! Removes secrets from the output of programs: the secrets in the settings, and all text that has
//! the form of a secret.

use etcd_session::Secret;
use planning::settings::{Settings, is_secret_name};
use std::sync::{Arc, PoisonError, RwLock};

/// Length of the shortest secret that is removed, in bytes. Shorter ones would match inside words.
const SHORTEST: usize = 4;
const HIDDEN: &str = "***";
/// Endings of names whose value is a secret: `?token=…`, `PGPASSWORD=…`.
const NAMES: [&str; 9] =
    ["password", "passwd", "pass", "pwd", "secret", "token", "apikey", "api_key", "api-key"];

/// The known secrets. Cloning is cheap, and all clones share the same secrets.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<RwLock<Vec<Secret>>>);

impl Secrets {
    /// Adds a secret. Secrets that were added before stay.
    pub fn learn(&self, name: &str, secret: Secret) {
        let length = secret.length();
        if length < SHORTEST {
            if length > 0 {
                tracing::warn!(
                    "the secret {name} is shorter than {SHORTEST} bytes: it is not cut out of what programs print"
                );
            }
            return;
        }
        // No code panics while this lock is held, so a poisoned lock is harmless.
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&secret) {
            known.push(secret);
            // The longest comes first, because one secret may be a part of another.
            known.sort_by_key(|secret| std::cmp::Reverse(secret.length()));
        }
    }

    /// Adds the secrets of the settings as they are now.
    pub fn learn_settings(&self, settings: &Settings) {
        for (name, value) in &settings.environment {
            in_variable(name, value).into_iter().for_each(|text| self.learn(name, Secret::new(text)));
        }
    }

    /// Replaces the secrets in the output of a program by `***`.
    pub fn redact(&self, text: &str) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let text = known.iter().fold(text.to_owned(), |text, secret| secret.redact(&text));
        drop(known);
        let mut hidden = in_text(&text);
        hidden.sort_unstable();
        let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
        for (from, to) in hidden {
            if from >= end {
                shown.push_str(&text[end..from]);
                shown.push_str(HIDDEN);
            }
            end = end.max(to);
        }
        shown + &text[end..]
    }
}

/// Returns the secret parts of an environment variable.
fn in_variable<'a>(name: &str, value: &'a str) -> Vec<&'a str> {
    let parts = in_text(value).into_iter().map(|(from, to)| &value[from..to]);
    let mut found: Vec<&str> = parts.chain(is_secret_name(name).then_some(value)).collect();
    // The form that some database drivers use: `user:password@tcp(db)/name`.
    if !value.contains("://")
        && !value.contains(char::is_whitespace)
        && let Some((login, _)) = value.rsplit_once('@')
        && let Some((_, password)) = login.split_once(':')
    {
        found.push(password);
    }
    found
}

/// Returns the byte ranges of a text that have the form of a secret.
fn in_text(text: &str) -> Vec<(usize, usize)> {
    let after = |separator: &'static str| {
        text.match_indices(separator).map(move |(at, _)| (at, at + separator.len()))
    };
    let passwords = after("://").filter_map(|(_, start)| {
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'<>`".contains(c)).unwrap_or(rest.len());
        let login = rest[..end].rfind('@')?;
        let colon = rest[..login].find(':')?;
        Some((start + colon + 1, start + login))
    });
    let assigned = after("=").filter_map(|(at, start)| {
        let head = text[..at].trim_end_matches(['"', '\'']);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c);
        let name = head.rsplit(is_end).next()?.to_ascii_lowercase();
        if !NAMES.iter().any(|ending| name.ends_with(ending)) {
            return None;
        }
        let value = &text[start..];
        let quote = value.chars().next().filter(|c| "\"'".contains(*c));
        let (start, value) = quote.map_or((start, value), |_| (start + 1, &value[1..]));
        let is_end = |c: char| match quote {
            Some(quote) => c == quote,
            None => c.is_whitespace() || "&;,\"'<>)".contains(c),
        };
        Some((start, start + value.find(is_end).unwrap_or(value.len())))
    });
    passwords.chain(assigned).filter(|(from, to)| from < to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_cut_out_of_what_programs_print() {
        let environment = "[environment]\nDB_PASSWORD = \"canary1\"\nPGPASS = \"canary2\"\nLOGIN_TOKEN = \"canary1long\"\n\
             DATABASE_URL = \"postgres://app:canary3@db/x\"\nMAIN_DSN = \"app:canary4@tcp(db:3306)/x\"\n\
             OTHER_DSN = \"host=db password=canary5 user=app\"\nSHORT_KEY = \"e\"\nEMPTY_SECRET = \"\"\nPLACE = \"here\"\n";
        let settings = planning::settings::read(&[("f".into(), environment.into())]).unwrap();
        let secrets = Secrets::default();
        secrets.learn_settings(&settings);
        for (text, expected) in [
            ("nothing here to see: a=b", "nothing here to see: a=b"),
            ("canary1 and canary1long, canary2", "*** and ***, ***"),
            ("canary3 canary4 canary5", "*** *** ***"),
            // A secret of one letter is not removed from every word.
            ("the end of the beginning", "the end of the beginning"),
            (
                "https://u:p@h/x http://u@h:80/y ftp://h/a:b@c",
                "https://u:***@h/x http://u@h:80/y ftp://h/a:b@c",
            ),
            ("mysql://app:p@ss:w@db:3306/x", "mysql://app:***@db:3306/x"),
            ("GET /x?token=abc&n=1 HTTP/1.1", "GET /x?token=***&n=1 HTTP/1.1"),
            ("PGPASSWORD=abc psql", "PGPASSWORD=*** psql"),
            ("password='a b' password=\"c d\" x", "password='***' password=\"***\" x"),
            ("password= token=", "password= token="),
            ("x?access_token=https://u:p@h/", "x?access_token=***"),
            ("ü=1 çpassword=ü é", "ü=1 çpassword=*** é"),
        ] {
            assert_eq!(secrets.redact(text), expected, "{text}");
        }
    }
}
