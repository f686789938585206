//! Who may look, and the headers that keep a browser from giving answers to others.

use super::cookie::CookieSigner;
use super::pages;
use crate::clock::now;
use crate::token::{Accepted, SHORTEST_TOKEN, TokenDigest};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Where the token is traded for a cookie.
pub(super) const SESSION_PATH: &str = "/v1/session";
/// The type of a form (WHATWG HTML, section 4.10.21.7).
const FORM: &str = "application/x-www-form-urlencoded";

pub(super) struct Access {
    /// The tokens, and what signs the cookies that stand for them; `None` if everybody on this machine may look.
    tokens: Option<(Accepted, CookieSigner)>,
    /// The origin of the own pages behind a proxy, by the settings. What a proxy adds to requests is not believed.
    public_origin: Option<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The request comes from a page of another site.
    OtherSite,
    /// The request has no token, or not the right one.
    NoToken,
}

impl Refusal {
    /// Returns the answer to a request: a page for a browser, a line of text for a program.
    fn answer(self, request: &Request) -> Response {
        let wants_page = request.method() == Method::GET && pages::wants_page(request.headers());
        match self {
            Self::OtherSite if wants_page => pages::from_other_site(request.uri()),
            Self::OtherSite => {
                (StatusCode::FORBIDDEN, "a page of another site must not ask the observer\n").into_response()
            }
            Self::NoToken if wants_page => pages::sign_in(false, pages::address_of(request.uri())),
            Self::NoToken => {
                let headers = [(header::WWW_AUTHENTICATE, "Bearer")];
                let text =
                    "the header `Authorization: Bearer TOKEN` with a token that is accepted is needed\n";
                (StatusCode::UNAUTHORIZED, headers, text).into_response()
            }
        }
    }
}

/// What a request has shown. Handlers get it as an extension of the request.
#[derive(Clone)]
pub(super) struct Granted {
    /// The token, or that for which its cookie stands; `None` if everybody may look.
    token: Option<(Accepted, TokenDigest)>,
    /// True if the request has a cookie alone.
    by_cookie: bool,
}

impl Granted {
    /// Returns the token that the request itself has.
    pub(super) fn shown_token(&self) -> Option<TokenDigest> {
        if self.by_cookie { None } else { self.token.as_ref().map(|(_, token)| *token) }
    }

    /// Resolves when the token is accepted no longer.
    pub(super) async fn ended(&mut self) {
        match &mut self.token {
            // An error means that the process ends.
            Some((accepted, token)) => _ = accepted.wait_for(|accepted| !accepted.contains(token)).await,
            None => std::future::pending().await,
        }
    }
}

impl Access {
    pub(super) fn new(tokens: Option<(Accepted, CookieSigner)>, public_origin: Option<String>) -> Self {
        Self { tokens, public_origin }
    }

    /// Returns the cookie for who shows a token in a form; `None` if it is not accepted.
    pub(super) fn cookie_for(&self, shown: &str) -> Option<String> {
        let (accepted, _) = self.tokens.as_ref()?;
        self.cookie_of(&accepted_token(accepted, shown.trim())?)
    }

    /// Returns the cookie that stands for a token.
    pub(super) fn cookie_of(&self, token: &TokenDigest) -> Option<String> {
        let (_, signer) = self.tokens.as_ref()?;
        Some(signer.set_cookie(token, now()))
    }

    fn check(&self, headers: &HeaderMap) -> Result<Granted, Refusal> {
        if !is_same_site(headers, self.public_origin.as_deref()) {
            return Err(Refusal::OtherSite);
        }
        let Some((accepted, signer)) = &self.tokens else {
            return Ok(Granted { token: None, by_cookie: false });
        };
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.split_once(' '));
        let token = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
        let mut cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let right = match token {
            Some(token) => accepted_token(accepted, token.trim()),
            None => cookies.find_map(|cookies| signer.token(cookies, &accepted.borrow(), now())),
        };
        let granted = |right| Granted { token: Some((accepted.clone(), right)), by_cookie: token.is_none() };
        right.map(granted).ok_or(Refusal::NoToken)
    }
}

/// Returns a token, if it is one that is accepted.
fn accepted_token(accepted: &Accepted, shown: &str) -> Option<TokenDigest> {
    // A digest does not show that its token is too short.
    if shown.len() < SHORTEST_TOKEN {
        return None;
    }
    let shown = TokenDigest::of(shown);
    accepted.borrow().contains(&shown).then_some(shown)
}

/// True if no browser says that a page of another site asks. Other programs send neither header.
fn is_same_site(headers: &HeaderMap, public_origin: Option<&str>) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_own_origin = |origin: &str| {
        let own = text(&header::HOST).unwrap_or_default();
        // The observer or a proxy may end TLS.
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(own))
            // A proxy may ask by another name than browsers ask the proxy.
            || public_origin.is_some_and(|public| origin.eq_ignore_ascii_case(public))
    };
    let is_from_here = |site: &str| matches!(site, "same-origin" | "none");
    text(&header::ORIGIN).is_none_or(is_own_origin)
        && text(&HeaderName::from_static("sec-fetch-site")).is_none_or(is_from_here)
}

/// Rejects a request that may not look.
pub(super) async fn require_access(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(access.clone());
    match access.check(request.headers()) {
        // The form in which people show the token is checked where it is read.
        Err(Refusal::NoToken) if is_for_everybody(&request) => next.run(request).await,
        Ok(granted) => {
            request.extensions_mut().insert(granted);
            next.run(request).await
        }
        Err(refusal) => refusal.answer(&request),
    }
}

/// True if a request says nothing about the fleet: the files of the pages, and the form of the sign-in.
fn is_for_everybody(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form = kind.is_some_and(|kind| kind.starts_with(FORM));
    let path = request.uri().path();
    match *request.method() {
        Method::GET => pages::is_public(path),
        Method::POST => path == SESSION_PATH && is_form,
        _ => false,
    }
}

/// Adds the headers of every answer: nothing in it is to be run, stored, framed or taken for another type.
pub(super) async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let policy = "default-src 'none'; frame-ancestors 'none'";
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        // Pages have their own policy.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::super::cookie::CookieScope;
    use super::*;
    use tokio::sync::watch;

    #[test]
    fn only_the_token_opens_and_no_page_of_another_site_asks() {
        const TOKEN: &str = "0123456789abcdef0123456789abcdef";
        let digests = ["another", "", TOKEN].map(TokenDigest::of);
        let (sender, accepted) = watch::channel(digests.to_vec());
        let access = Access::new(Some((accepted, CookieSigner::new(&[0; 32], CookieScope::default()))), None);
        let right = format!("Bearer {TOKEN}");
        let check = |access: &Access, headers: &[(&'static str, &str)], expected: Result<(), Refusal>| {
            let headers = headers.iter().chain(&[("host", "127.0.0.1:8590")]);
            let headers =
                headers.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            assert_eq!(
                access.check(&headers.clone().collect()).map(|_| ()),
                expected,
                "{:?}",
                headers.collect::<Vec<_>>()
            );
        };
        let token = ("authorization", right.as_str());
        check(&access, &[token], Ok(()));
        check(&access, &[("authorization", &right.to_lowercase())], Ok(()));
        check(&access, &[], Err(Refusal::NoToken));
        for wrong in
            ["Bearer", "Bearer ", "Bearer another", "Basic 0123", TOKEN, &right[..20], &format!("{right}0")]
        {
            check(&access, &[("authorization", wrong)], Err(Refusal::NoToken));
        }
        for (name, value, expected) in [
            ("origin", "http://127.0.0.1:8590", Ok(())),
            ("origin", "http://127.0.0.1:9", Err(Refusal::OtherSite)),
            ("origin", "https://127.0.0.1:8590", Ok(())),
            ("origin", "http://evil.example", Err(Refusal::OtherSite)),
            ("origin", "null", Err(Refusal::OtherSite)),
            ("sec-fetch-site", "same-origin", Ok(())),
            ("sec-fetch-site", "none", Ok(())),
            ("sec-fetch-site", "same-site", Err(Refusal::OtherSite)),
            ("sec-fetch-site", "cross-site", Err(Refusal::OtherSite)),
        ] {
            check(&access, &[token, (name, value)], expected);
            check(&Access::new(None, None), &[(name, value)], expected);
        }
        let behind_proxy = Access::new(None, Some("https://ops.example".into()));
        for (origin, expected) in [
            ("https://ops.example", Ok(())),
            ("http://127.0.0.1:8590", Ok(())),
            ("http://ops.example", Err(Refusal::OtherSite)),
            ("https://ops.example:8443", Err(Refusal::OtherSite)),
            ("https://ops.example.evil.example", Err(Refusal::OtherSite)),
        ] {
            check(&behind_proxy, &[("origin", origin)], expected);
            let forwarded = [("x-forwarded-host", "ops.example"), ("x-forwarded-proto", "https")];
            check(&behind_proxy, &[forwarded[0], forwarded[1], ("origin", origin)], expected);
            let host = ("forwarded", "host=evil.example");
            check(
                &Access::new(None, None),
                &[host, ("origin", "https://evil.example")],
                Err(Refusal::OtherSite),
            );
        }
        let cookie = access.cookie_for(TOKEN).unwrap();
        for wrong in ["wrong", "", " ", "another"] {
            assert_eq!(access.cookie_for(wrong), None, "{wrong}");
        }
        check(&access, &[("cookie", &cookie)], Ok(()));
        check(&access, &[("cookie", &cookie), ("origin", "http://evil.example")], Err(Refusal::OtherSite));
        check(&access, &[("cookie", &cookie), ("authorization", "Bearer wrong")], Err(Refusal::NoToken));
        // The token is taken away.
        sender.send_replace(vec![TokenDigest::of("another")]);
        check(&access, &[token], Err(Refusal::NoToken));
        check(&access, &[("cookie", &cookie)], Err(Refusal::NoToken));
        check(&Access::new(None, None), &[], Ok(()));
    }
}
