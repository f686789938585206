//! The cookie that stands for a token in a browser. It is signed, so it needs no memory, outlives a restart, and ends when
//! the token is accepted no longer. The key is a secret of its own: who can read digests of tokens can sign nothing.

use crate::secret_file;
use crate::token::TokenDigest;
use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use schema::time::EpochSeconds;
use std::path::Path;

/// How long a cookie is valid, in seconds.
const LIFETIME_SECONDS: i64 = 12 * 60 * 60;
/// Shortest key, in bytes of base64.
const KEY_SHORTEST: usize = 32;

/// Makes and checks cookies.
#[derive(Clone)]
pub(crate) struct CookieSigner {
    key: hmac::Key,
    /// Browsers send a cookie to every port of a machine, and several observers may run there. So the name ends with a
    /// part that follows from the key.
    name: String,
    scope: CookieScope,
}

/// Where browsers send a cookie.
#[derive(Debug, Default, Clone)]
pub(crate) struct CookieScope {
    /// True if they may send it only over TLS.
    pub(crate) is_secure: bool,
    /// The path below which they send it, without a slash at its end.
    pub(crate) path: String,
}

impl CookieSigner {
    /// Reads the key from its file, which is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be used.
    pub(crate) fn open(path: &Path, scope: CookieScope) -> Result<Self> {
        const WHAT: &str = "the key of cookies";
        let name = || format!("{WHAT} {}", path.display());
        if !path.exists() {
            let mut key = [0; 32];
            ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut key)
                .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
            secret_file::create(path, &URL_SAFE_NO_PAD.encode(key), 0o600).with_context(name)?;
        }
        let key = secret_file::read(WHAT, path)?;
        let key = key.trim();
        ensure!(key.len() >= KEY_SHORTEST, "{}: it is too short; remove it, and a new one is made", name());
        Ok(Self::new(key.as_bytes(), scope))
    }

    pub(super) fn new(key: &[u8], scope: CookieScope) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&key, b"name of the cookie");
        let part: String = tag.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Self { key, name: format!("orchestrate_session_{part}"), scope }
    }

    /// Returns the value of the header `Set-Cookie` for who has shown a token. Scripts cannot read the cookie, and no page
    /// of another site can use it.
    pub(super) fn set_cookie(&self, token: &TokenDigest, now: EpochSeconds) -> String {
        let end = now.0.saturating_add(LIFETIME_SECONDS);
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, &signed(token, end)));
        let secure = if self.scope.is_secure { "; Secure" } else { "" };
        let (name, path) = (&self.name, &self.scope.path);
        format!(
            "{name}={end}.{signature}; Path={path}/; Max-Age={LIFETIME_SECONDS}; HttpOnly; SameSite=Strict{secure}"
        )
    }

    /// Returns the token for which a cookie in a header `Cookie` stands, if it is one of these and the cookie has not
    /// ended.
    pub(super) fn token(
        &self,
        header: &str,
        accepted: &[TokenDigest],
        now: EpochSeconds,
    ) -> Option<TokenDigest> {
        let cookies = header.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        cookies.filter(|(name, _)| *name == self.name).find_map(|(_, value)| {
            let (end, signature) = value.split_once('.')?;
            let (end, signature) = (end.parse::<i64>().ok()?, URL_SAFE_NO_PAD.decode(signature).ok()?);
            let is_of =
                |token: &&TokenDigest| hmac::verify(&self.key, &signed(token, end), &signature).is_ok();
            if end > now.0 { accepted.iter().find(is_of).copied() } else { None }
        })
    }
}

fn signed(token: &TokenDigest, end: i64) -> Vec<u8> {
    [format!("session until {end} of ").as_bytes(), token.bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_valid_for_half_a_day_and_for_its_token() {
        let (token, other) = (TokenDigest::of("a"), TokenDigest::of("b"));
        let (signer, elsewhere) = (
            CookieSigner::new(&[1; 32], CookieScope::default()),
            CookieSigner::new(&[2; 32], CookieScope { is_secure: true, path: "/fleet".into() }),
        );
        let made = signer.set_cookie(&token, EpochSeconds(1000));
        let cookie = made.split(';').next().unwrap();
        assert!(made.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{made}");
        let secure = elsewhere.set_cookie(&token, EpochSeconds(1000));
        assert!(
            secure.contains("; Path=/fleet/; ") && secure.ends_with("; SameSite=Strict; Secure"),
            "{secure}"
        );
        let check = |header: &str, accepted: &[TokenDigest], now: i64, expected: bool| {
            let found = signer.token(header, accepted, EpochSeconds(now));
            assert!(found == expected.then_some(token), "{header} at {now}");
        };
        check(cookie, &[token], 1000, true);
        check(cookie, &[other, token], 1000, true);
        check(&format!("a=b; {cookie}; c=d"), &[token], 44_199, true);
        check(cookie, &[token], 44_200, false);
        check(cookie, &[other], 1000, false);
        check(cookie, &[], 1000, false);
        let later = cookie.replace("44200", "99999");
        let name = &signer.name;
        assert_ne!(*name, elsewhere.name, "observers on one machine do not sign each other's users out");
        let forged = CookieSigner { name: name.clone(), ..elsewhere }.set_cookie(&token, EpochSeconds(1000));
        for wrong in [
            "",
            "a",
            &format!("{name}="),
            &format!("{name}=99999."),
            &later,
            &cookie[..cookie.len() - 1],
            &forged,
        ] {
            check(wrong, &[token], 1000, false);
        }
    }

    #[test]
    fn the_key_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cookie.key");
        let open = || CookieSigner::open(&path, CookieScope::default());
        let (first, second) = (open().unwrap(), open().unwrap());
        assert_eq!(first.name, second.name);
        std::fs::write(&path, "short").unwrap();
        assert!(open().err().unwrap().to_string().contains("it is too short"));
    }
}
