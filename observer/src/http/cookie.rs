//! The cookie that stands for the token in a browser. It is signed with a key that follows from the token, so it needs no
//! memory, outlives a restart, and ends when the token changes.

use crate::token::TokenDigest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use schema::time::EpochSeconds;

/// Browsers send a cookie to every port of a machine, and several observers may run there. So its name ends with a part
/// that follows from the token.
const NAME: &str = "orchestrate_session";
/// How long a cookie is valid, in seconds.
const LIFETIME_SECONDS: i64 = 12 * 60 * 60;

/// Returns the value of the header `Set-Cookie`. Scripts cannot read the cookie, and no page of another site can use it.
pub(super) fn set_cookie(token: &TokenDigest, now: EpochSeconds) -> String {
    let end = now.0.saturating_add(LIFETIME_SECONDS);
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&token.cookie_key(), signed(end).as_bytes()));
    let name = name_of(token);
    format!("{name}={end}.{signature}; Path=/; Max-Age={LIFETIME_SECONDS}; HttpOnly; SameSite=Strict")
}

/// True if a header `Cookie` has a cookie that was made with this token and has not ended.
pub(super) fn is_valid(header: &str, token: &TokenDigest, now: EpochSeconds) -> bool {
    let cookies = header.split(';').filter_map(|cookie| cookie.trim().split_once('='));
    let own = name_of(token);
    cookies.filter(|(name, _)| *name == own).any(|(_, value)| {
        let Some((end, signature)) = value.split_once('.') else { return false };
        let (Ok(end), Ok(signature)) = (end.parse::<i64>(), URL_SAFE_NO_PAD.decode(signature)) else {
            return false;
        };
        end > now.0 && hmac::verify(&token.cookie_key(), signed(end).as_bytes(), &signature).is_ok()
    })
}

fn name_of(token: &TokenDigest) -> String {
    let tag = hmac::sign(&token.cookie_key(), b"name of the cookie");
    let part: String = tag.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{NAME}_{part}")
}

fn signed(end: i64) -> String {
    format!("session until {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_valid_for_half_a_day_and_for_its_token() {
        let (token, other) = (TokenDigest::of("a"), TokenDigest::of("b"));
        let made = set_cookie(&token, EpochSeconds(1000));
        let cookie = made.split(';').next().unwrap();
        assert!(made.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{made}");
        let check = |header: &str, token: &TokenDigest, now: i64, expected: bool| {
            assert_eq!(is_valid(header, token, EpochSeconds(now)), expected, "{header} at {now}");
        };
        check(cookie, &token, 1000, true);
        check(&format!("a=b; {cookie}; c=d"), &token, 44_199, true);
        check(cookie, &token, 44_200, false);
        check(cookie, &other, 1000, false);
        let later = cookie.replace("44200", "99999");
        let name = name_of(&token);
        assert_ne!(name, name_of(&other), "observers on one machine do not sign each other's users out");
        for wrong in
            ["", NAME, &format!("{name}="), &format!("{name}=99999."), &later, &cookie[..cookie.len() - 1]]
        {
            check(wrong, &token, 1000, false);
        }
    }
}
