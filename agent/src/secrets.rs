//! The secrets that the agent knows, and how they are removed from the output of programs.

use archive::{Cut, Redactor, SHORTEST_SECRET, in_form};
use catalog::checks::OUTPUT_MAX_BYTES;
use etcd_session::Secret;
use planning::settings::{Settings, is_secret_name};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// The known secrets. Cloning is cheap, and all clones share the same secrets.
#[derive(Clone, Default)]
pub struct Secrets(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    secrets: Vec<Secret>,
    redactor: Redactor,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secrets {
    /// Adds a secret. Secrets that were added before stay.
    pub fn learn(&self, name: &str, secret: Secret) {
        let length = secret.length();
        if length < SHORTEST_SECRET {
            if length > 0 {
                tracing::warn!(
                    "the secret {name} is shorter than {SHORTEST_SECRET} bytes: it is not cut out of what programs print"
                );
            }
            return;
        }
        // No code panics while this lock is held, so a poisoned lock is harmless.
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !known.secrets.contains(&secret) {
            known.secrets.push(secret);
            known.redactor = Redactor::new(known.secrets.iter().map(Secret::bytes));
        }
    }

    /// Adds the secrets of the settings as they are now.
    pub fn learn_settings(&self, settings: &Settings) {
        for (name, value) in &settings.environment {
            in_variable(name, value).into_iter().for_each(|text| self.learn(name, Secret::new(text)));
        }
    }

    /// Replaces the secrets in a whole text by `***`.
    pub fn redact(&self, text: &str) -> String {
        self.redact_cut(text, Cut::default())
    }

    /// Replaces the secrets in a text by `***`, and their parts where the text was cut.
    pub fn redact_cut(&self, text: &str, cut: Cut) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).redactor.redact(text, cut)
    }

    /// Replaces the secrets in the output of a check by `***`. A longer output was cut.
    pub fn redact_check(&self, output: &str) -> String {
        let (output, mark) = output.strip_suffix('…').map_or((output, ""), |output| (output, "…"));
        let is_cut = !mark.is_empty() || output.len() >= OUTPUT_MAX_BYTES;
        self.redact_cut(output, Cut { begin: is_cut, end: is_cut }) + mark
    }
}

/// Returns the secret parts of an environment variable.
fn in_variable<'a>(name: &str, value: &'a str) -> Vec<&'a str> {
    let parts = in_form(value).map(|range| &value[range]);
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
            ("canary1 and canary1long, canary2", "*** and ***, ***"),
            ("canary3 canary4 canary5", "*** *** ***"),
            // A secret of one letter is not removed from every word.
            ("the end of the beginning", "the end of the beginning"),
            ("mysql://app:p@ss:w@db:3306/x", "mysql://app:***@db:3306/x"),
        ] {
            assert_eq!(secrets.redact(text), expected, "{text}");
        }
        assert_eq!(secrets.redact_check("nary1long is cana"), "nary1long is cana");
        assert_eq!(secrets.redact_check("nary1long is cana…"), "*** is ***…");
        assert_eq!(format!("{secrets:?}"), "***");
    }
}
