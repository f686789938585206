//! The token that clients show. It stands in a file, which the observer creates; who may read the file may look.
//! The file is read again when it changes, so that another token can be put there.

use crate::secret_file;
use anyhow::{Context, Result, ensure};
use etcd_session::random_token;
use ring::digest::{SHA256, digest};
use ring::hmac;
use std::fs::{OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// Time between two looks at the file.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest token, in bytes.
const SHORTEST: usize = 32;

/// The digest of a token. Digests are compared, so that the time of a comparison tells nothing about the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of a token.
    pub(crate) fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Returns the key that signs cookies.
    pub(crate) fn cookie_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// What is accepted at present; `None` if the file is gone or cannot be used.
pub(crate) type Accepted = watch::Receiver<Option<TokenDigest>>;

/// The file of the token.
pub(crate) struct TokenFile {
    path: PathBuf,
    token: watch::Sender<Option<TokenDigest>>,
}

impl TokenFile {
    /// Opens the file, and creates it with a new token if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let token = match read(path) {
            Err(error) if is_not_found(&error) => {
                create(path).with_context(|| format!("the token file {}", path.display()))?;
                read(path)?
            }
            token => token?,
        };
        Ok(Self { path: path.to_owned(), token: watch::channel(Some(token)).0 })
    }

    /// Returns what is accepted.
    pub(crate) fn accepted(&self) -> Accepted {
        self.token.subscribe()
    }

    /// Reads the file again whenever it changes.
    pub(crate) async fn watch(self) {
        let mut failed = false;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let read = read(&self.path);
            if let Err(error) = &read
                && !failed
            {
                tracing::error!("{error:#}; nobody can look until that is mended");
            }
            failed = read.is_err();
            let token = read.ok();
            self.token.send_if_modified(|accepted| {
                let changed = *accepted != token;
                *accepted = token;
                changed
            });
        }
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Creates the file with a new token, for the user and the group of this process. It is there whole or not at all.
fn create(path: &Path) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{}", random_token())?;
    // The mode at the creation is subject to the umask.
    file.set_permissions(Permissions::from_mode(0o640))?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

fn read(path: &Path) -> Result<TokenDigest> {
    const WHAT: &str = "the token file";
    let token = secret_file::read(WHAT, path)?;
    let is_word = token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(
        token.len() >= SHORTEST && is_word,
        "{WHAT} {}: it must hold one word of at least {SHORTEST} printable characters",
        path.display()
    );
    Ok(TokenDigest::of(&token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_created_once_and_refused_if_everybody_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        drop(TokenFile::open(&path).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 32);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let opened = TokenFile::open(&path).unwrap();
        assert!(*opened.accepted().borrow() == Some(TokenDigest::of(text.trim())));
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(TokenFile::open(&path).err().unwrap().to_string().contains("its mode must be 0640"));
        mode(0o600);
        for wrong in ["short", &"x y".repeat(20), &"ü".repeat(40)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(TokenFile::open(&path).is_err(), "{wrong}");
        }
    }
}
