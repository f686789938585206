//! The secrets that the agent knows, and how they are removed from the output of programs.

use archive::{Cut, Redactor, SHORTEST_SECRET, in_form, unescaped_url};
use catalog::checks::OUTPUT_MAX_BYTES;
use etcd_session::Secret;
use settings::{SecretPattern, Settings, is_secret_name};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Longest part of a file with secrets that is read, in bytes.
const SECRET_FILE_MAX_BYTES: u64 = 64 * 1024;

/// The known secrets. Cloning is cheap, and all clones share the same secrets.
#[derive(Clone, Default)]
pub struct Secrets(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    secrets: Vec<Secret>,
    patterns: Vec<SecretPattern>,
    redactor: Arc<Redactor>,
    /// Names of secrets that are too short. The log names each once, though settings are learnt before each step.
    short: BTreeSet<String>,
    /// Why files could not be read when that was tried last.
    unreadable: Vec<String>,
}

impl Known {
    fn renew_redactor(&mut self) {
        let patterns = self.patterns.iter().map(|pattern| pattern.regex().clone()).collect();
        let secrets = self.secrets.iter().map(Secret::bytes);
        self.redactor = Arc::new(Redactor::new(secrets).with_patterns(patterns));
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secrets {
    /// Adds a secret. Secrets that were added before stay.
    pub fn learn(&self, name: &str, secret: Secret) {
        self.learn_all([(name, secret)]);
    }

    /// Adds the secrets of the settings as they are now, with those of the files that they name, and takes their patterns.
    /// Returns why files cannot be read.
    pub fn learn_settings(&self, settings: &Settings) -> Vec<String> {
        self.learn_patterns(&settings.secret_patterns);
        let variables = settings.environment.iter();
        self.learn_all(variables.flat_map(|(name, value)| {
            in_variable(name, value).into_iter().map(move |text| (name.as_str(), Secret::new(text)))
        }));
        // It may have changed. If it cannot be read, the session says so.
        if let Some(Ok(password)) = settings.store.password_file.as_deref().map(Secret::read_file) {
            self.learn("of the store's user", password);
        }
        let learn_file = |path: &PathBuf| {
            let name = path.display().to_string();
            match in_file(path) {
                Ok(secrets) => {
                    self.learn_all(secrets.into_iter().map(|text| (name.as_str(), Secret::new(text))));
                    None
                }
                Err(error) => Some(format!("{name}: {error}")),
            }
        };
        settings.secret_files.iter().filter_map(learn_file).collect()
    }

    /// Same as [`learn_settings`](Self::learn_settings), and logs once which files cannot be read.
    pub fn learn_settings_logged(&self, settings: &Settings) {
        let unreadable = self.learn_settings(settings);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for why in unreadable.iter().filter(|why| !known.unreadable.contains(why)) {
            tracing::warn!("the secrets of a file are not known: {why}");
        }
        known.unreadable = unreadable;
    }

    fn learn_all<'a>(&self, secrets: impl IntoIterator<Item = (&'a str, Secret)>) {
        // No code panics while this lock is held, so a poisoned lock is harmless.
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.secrets.len();
        for (name, secret) in secrets {
            let length = secret.length();
            if length >= SHORTEST_SECRET && !known.secrets.contains(&secret) {
                known.secrets.push(secret);
            } else if (1..SHORTEST_SECRET).contains(&length) && known.short.insert(name.to_owned()) {
                tracing::warn!(
                    "the secret {name} is shorter than {SHORTEST_SECRET} bytes: it is not cut out of what programs print"
                );
            }
        }
        if known.secrets.len() > before {
            known.renew_redactor();
        }
    }

    fn learn_patterns(&self, patterns: &[SecretPattern]) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.patterns != patterns {
            known.patterns = patterns.to_vec();
            known.renew_redactor();
        }
    }

    /// Replaces the secrets in a whole text by `***`.
    pub fn redact(&self, text: &str) -> String {
        self.redact_cut(text, Cut::default())
    }

    /// Replaces the secrets in a text by `***`, and their parts where the text was cut.
    pub fn redact_cut(&self, text: &str, cut: Cut) -> String {
        self.redactor().redact(text, cut)
    }

    /// Returns what finds the secrets that are known now.
    pub fn redactor(&self) -> Arc<Redactor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).redactor.clone()
    }

    /// Replaces the secrets in the output of a check by `***`. A longer output was cut.
    pub fn redact_check(&self, output: &str) -> String {
        let (output, mark) = output.strip_suffix('…').map_or((output, ""), |output| (output, "…"));
        let is_cut = !mark.is_empty() || output.len() >= OUTPUT_MAX_BYTES;
        self.redact_cut(output, Cut { begin: is_cut, end: is_cut }) + mark
    }
}

/// Returns the secrets of a file: its lines, and the secret parts of those that set a variable.
fn in_file(path: &Path) -> io::Result<Vec<String>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(SECRET_FILE_MAX_BYTES).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = |line: &str| match line.split_once('=') {
        Some((name, value)) => in_variable(name, value.trim_matches(['"', '\''])),
        None => Vec::new(),
    };
    Ok(lines.flat_map(|line| [vec![line.to_owned()], parts(line)].concat()).collect())
}

/// Returns the secret parts of an environment variable.
fn in_variable(name: &str, value: &str) -> Vec<String> {
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
    // A program that reads a URL knows what its escapes stand for.
    let unescaped: Vec<String> = found.iter().filter_map(|text| unescaped_url(text)).collect();
    found.into_iter().map(str::to_owned).chain(unescaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_cut_out_of_what_programs_print() {
        let environment = "[environment]\nDB_PASSWORD = \"canary1\"\nPGPASS = \"canary2\"\nLOGIN_TOKEN = \"canary1long\"\n\
             DATABASE_URL = \"postgres://app:canary3@db/x\"\nMAIN_DSN = \"app:canary4@tcp(db:3306)/x\"\n\
             ESCAPED_URL = \"postgres://app:c%40nary6@db/x\"\nOTHER_DSN = \"host=db password=canary5 user=app\"\nSHORT_KEY = \"e\"\nEMPTY_SECRET = \"\"\nPLACE = \"here\"\n";
        let settings = settings::read(&[("f".into(), environment.into())]).unwrap();
        let secrets = Secrets::default();
        assert_eq!(secrets.learn_settings(&settings), [""; 0]);
        for (text, expected) in [
            ("canary1 and canary1long, canary2", "*** and ***, ***"),
            ("canary3 canary4 canary5", "*** *** ***"),
            ("login app with c@nary6, c%40nary6", "login app with ***, ***"),
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

    #[test]
    fn what_matches_a_pattern_is_a_secret_as_long_as_the_settings_have_it() {
        let secrets = Secrets::default();
        secrets.learn("password", Secret::new("canary-1"));
        for (text, expected) in [
            ("secret_patterns = ['tok-[0-9]{6}']\n", "*** and ***, key-77"),
            ("secret_patterns = ['tok-[0-9]{6}', 'key-[0-9]+']\n", "*** and ***, ***"),
            ("", "*** and tok-123456, key-77"),
        ] {
            let settings = settings::read(&[("f".into(), text.into())]).unwrap();
            assert_eq!(secrets.learn_settings(&settings), [""; 0]);
            assert_eq!(secrets.redact("canary-1 and tok-123456, key-77"), expected, "{text}");
        }
    }

    #[test]
    fn the_lines_of_secret_files_are_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets");
        let missing = directory.path().join("missing");
        std::fs::write(
            &path,
            "# canary-comment\n\n  canary-token==\nDB_PASSWORD=\"canary-word\"\nPLACE=here\n",
        )
        .unwrap();
        let text = format!("secret_files = [{:?}, {:?}]\n", path, missing);
        let settings = settings::read(&[("f".into(), text)]).unwrap();
        let secrets = Secrets::default();
        let unreadable = secrets.learn_settings(&settings);
        assert_eq!(unreadable.len(), 1, "{unreadable:?}");
        assert!(unreadable[0].contains("/missing: No such file"), "{unreadable:?}");
        for (text, expected) in [
            ("login canary-token== works", "login *** works"),
            ("it is canary-word", "it is ***"),
            ("PLACE=here", "***"),
            ("here", "here"),
            ("canary-comment", "canary-comment"),
        ] {
            assert_eq!(secrets.redact(text), expected, "{text}");
        }
    }
}
