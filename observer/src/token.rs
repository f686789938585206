//! The tokens that clients show. One stands in a file, which the observer creates: who may read the file may look. Or a
//! file has the digests of many, each with the name of its owner: who may read it may not look.
//! The file is read again when it changes, so that tokens can be replaced.

use crate::secret_file;
use anyhow::{Context, Result, bail, ensure};
use etcd_session::random_token;
use ring::digest::{SHA256, digest};
use settings::HttpAccess;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// Time between two looks at the file.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest token that is accepted, in bytes.
pub(crate) const SHORTEST_TOKEN: usize = 32;

/// The digest of a token (SHA-256). Digests are compared, so that the time of a comparison tells nothing about the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of a token.
    pub(crate) fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Reads a digest in hexadecimal digits, as `sha256sum` prints it.
    fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let pairs = text.as_bytes().chunks(2);
        if text.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |of: u8| char::from(of).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What is accepted at present; nothing if the file is gone or cannot be used.
pub(crate) type Accepted = watch::Receiver<Vec<TokenDigest>>;

/// The file of the token or of the digests.
pub(crate) struct TokenFile {
    path: PathBuf,
    read: fn(&Path) -> Result<Vec<TokenDigest>>,
    tokens: watch::Sender<Vec<TokenDigest>>,
}

impl TokenFile {
    /// Opens the file, and creates it with a new token if it does not exist. Returns `None` if everybody may look.
    pub(crate) fn open(access: &HttpAccess) -> Result<Option<Self>> {
        let (path, read): (_, fn(&Path) -> _) = match access {
            HttpAccess::LocalUsers => return Ok(None),
            HttpAccess::Token(path) => (path, read_token),
            HttpAccess::Digests(path) => (path, read_digests),
        };
        let tokens = match (read(path), access) {
            (Err(error), HttpAccess::Token(_)) if is_not_found(&error) => {
                let directory = path.parent().map_or(Ok(()), secret_file::create_directory);
                let created =
                    directory.and_then(|()| secret_file::create(path, &random_token().to_string(), 0o640));
                created.with_context(|| format!("the token file {}", path.display()))?;
                read(path)?
            }
            (tokens, _) => tokens?,
        };
        Ok(Some(Self { path: path.clone(), read, tokens: watch::channel(tokens).0 }))
    }

    /// Returns what is accepted.
    pub(crate) fn accepted(&self) -> Accepted {
        self.tokens.subscribe()
    }

    /// Reads the file again whenever it changes.
    pub(crate) async fn watch(self) {
        let mut problem = None;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let read = (self.read)(&self.path);
            let before =
                std::mem::replace(&mut problem, read.as_ref().err().map(|error| format!("{error:#}")));
            match &problem {
                Some(new) if problem != before => {
                    tracing::error!("{new}; access is denied until this is fixed")
                }
                None if before.is_some() => tracing::info!("{} can be read again", self.path.display()),
                _ => {}
            }
            let tokens = read.unwrap_or_default();
            self.tokens.send_if_modified(|accepted| {
                let changed = *accepted != tokens;
                *accepted = tokens;
                changed
            });
        }
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

fn read_token(path: &Path) -> Result<Vec<TokenDigest>> {
    const WHAT: &str = "the token file";
    let text = secret_file::read(WHAT, path)?;
    let token = text.trim();
    let is_word = token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(
        token.len() >= SHORTEST_TOKEN && is_word,
        "{WHAT} {}: it must hold one word of at least {SHORTEST_TOKEN} printable characters",
        path.display()
    );
    Ok(vec![TokenDigest::of(token)])
}

fn read_digests(path: &Path) -> Result<Vec<TokenDigest>> {
    const WHAT: &str = "the file of the digests";
    let text = secret_file::read(WHAT, path)?;
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [word, ..] if word.starts_with('#') => {}
            [_, digest] if let Some(digest) = TokenDigest::read(digest) => {
                let empty = digest == TokenDigest::of("");
                ensure!(
                    !empty,
                    "{WHAT} {}: line {}: this is the digest of no token",
                    path.display(),
                    number + 1
                );
                tokens.push(digest);
            }
            _ => bail!(
                "{WHAT} {}: line {}: must be a name and the SHA-256 of a token, as 64 hexadecimal digits",
                path.display(),
                number + 1
            ),
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_file_is_created_once_and_refused_if_everybody_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let open = || TokenFile::open(&HttpAccess::Token(path.clone())).map(Option::unwrap);
        drop(open().unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 32);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(*open().unwrap().accepted().borrow() == [TokenDigest::of(text.trim())]);
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(open().err().unwrap().to_string().contains("its mode must be 0640"));
        mode(0o600);
        for wrong in ["short", &"x y".repeat(20), &"ü".repeat(40)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(open().is_err(), "{wrong}");
        }
    }

    #[test]
    fn digests_are_read_line_by_line_and_never_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("digests");
        let check = |text: &str, expected: Result<Vec<TokenDigest>, &str>| {
            secret_file::create(&path, text, 0o640).unwrap();
            match (TokenFile::open(&HttpAccess::Digests(path.clone())), expected) {
                (Ok(file), Ok(expected)) => assert!(*file.unwrap().accepted().borrow() == expected, "{text}"),
                (Err(error), Err(expected)) => assert!(error.to_string().ends_with(expected), "{error}"),
                (found, _) => panic!("{text}: {:?}", found.err()),
            }
        };
        assert!(TokenFile::open(&HttpAccess::Digests(path.clone())).is_err());
        assert!(!path.exists());
        // printf %s abc | sha256sum
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let (a, upper) = (TokenDigest::of("abc"), abc.to_uppercase());
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        check(&format!("\n\nann {empty}\n"), Err("line 3: this is the digest of no token"));
        check("", Ok(vec![]));
        check(&format!("# who may look\n\nann {abc}\n  bob\t{upper}  \n"), Ok(vec![a, a]));
        let wrong = "must be a name and the SHA-256 of a token, as 64 hexadecimal digits";
        for line in
            [abc, "ann abc", &format!("ann {}x", &abc[1..]), &format!("ann b {abc}"), &format!("a {abc}0")]
        {
            check(line, Err(wrong));
        }
        check(&format!("a {abc}\nb {}", &abc[1..]), Err(&format!("line 2: {wrong}")));
    }
}
