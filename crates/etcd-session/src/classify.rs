//! Classifies errors of the client library by what they mean for the caller.

use crate::certificates;
use crate::config::SessionConfig;
use crate::connecting::{self, NotConnected};
use crate::error::StoreError;
use crate::request::Repeat;

/// The session, and the endpoint if known, to which a failed request belongs.
pub(crate) struct Caller<'a> {
    pub(crate) config: &'a SessionConfig,
    /// Endpoint that received the request; `None` if it is not known.
    pub(crate) endpoint: Option<&'a str>,
}

impl Caller<'_> {
    /// Returns the user name by which etcd knows this client: the configured user, else the common
    /// name of the certificate.
    fn user(&self) -> String {
        let given = self.config.user.as_ref().map(|(name, _)| name.clone());
        given
            .or_else(|| certificates::common_name(&self.config.tls))
            .unwrap_or_else(|| "the anonymous user".to_owned())
    }
}

impl StoreError {
    /// Classifies an error of the client library. Codes and texts are those of etcd's
    /// `api/v3rpc/rpctypes/error.go`.
    pub(crate) fn of(
        operation: &'static str,
        repeat: Repeat,
        who: &Caller<'_>,
        error: &etcd_client::Error,
    ) -> Self {
        let at =
            |detail: String| who.endpoint.map_or(detail.clone(), |endpoint| format!("{endpoint}: {detail}"));
        let lost = |text: String| {
            let how = connecting::describe(error, &who.config.tls).unwrap_or(text);
            Self::lost(operation, repeat, at(how))
        };
        match connecting::not_connected(error, &who.config.tls) {
            Some(NotConnected::Unreachable(why)) => return Self::Unreachable { operation, detail: at(why) },
            Some(NotConnected::NoSuchName(why)) => return Self::NoSuchName { operation, detail: at(why) },
            Some(NotConnected::Tls(why)) => return Self::Tls { operation, detail: at(why) },
            None => {}
        }
        let detail = error.to_string();
        let status = match error {
            etcd_client::Error::GRpcStatus(status) => status,
            etcd_client::Error::LeaseKeepAliveError(_) if detail.contains("not found") => {
                return Self::LeaseGone { operation };
            }
            etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => {
                return Self::Endpoints { detail };
            }
            _ => return lost(detail),
        };
        let message = status.message();
        let detail = if message.is_empty() { detail } else { message.to_owned() };
        let unauthenticated = || {
            let user = who.user();
            let detail = login_problem(&detail, &user);
            Self::Unauthenticated { operation, user, detail }
        };
        // The numbers are those of google.rpc.Code.
        match i32::from(status.code()) {
            14 if detail.contains("no leader") => Self::Unreachable { operation, detail },
            8 if message.contains("too many requests") => Self::Busy { operation },
            8 if message.contains("database space exceeded") => Self::NoSpace { operation },
            7 => Self::PermissionDenied { operation, user: who.user() },
            16 => unauthenticated(),
            2 | 3 | 9 if is_about_login(message) => unauthenticated(),
            // The client library itself reports this when an answer exceeds its decoding limit.
            11 if message.contains("message length too large") => Self::TooLarge { operation, detail },
            11 if message.contains("compacted") => Self::Compacted { operation },
            5 if message.contains("lease not found") => Self::LeaseGone { operation },
            // Unavailable, deadline exceeded, cancelled, unknown, internal, aborted: the request
            // may have been sent.
            14 | 4 | 1 | 2 | 10 | 13 => lost(detail),
            _ => Self::Refused { operation, detail },
        }
    }
}

/// True if etcd does not accept who sends the request. Releases differ in the codes of these errors, and some have the
/// code of an unknown error.
fn is_about_login(message: &str) -> bool {
    const TEXTS: [&str; 6] = [
        "authentication failed",
        "authentication is not enabled",
        "user name is empty",
        "invalid auth token",
        "revision of auth store is old",
        "revision in header is old",
    ];
    TEXTS.iter().any(|text| message.contains(text))
}

/// True if the token of a user was issued before users or roles changed: another one is accepted.
pub(crate) fn is_outdated_token(detail: &str) -> bool {
    detail.contains("revision of auth store is old") || detail.contains("revision in header is old")
}

/// Returns what the store does not accept about a user, and what would be right.
fn login_problem(text: &str, user: &str) -> String {
    if text.contains("password was given for no password user") {
        return format!(
            "it was created without a password, and `etcdctl user passwd` does not change that: use a client certificate of {user}, or delete the user and enroll it with --password-file"
        );
    }
    if text.contains("authentication is not enabled") {
        return "the store has no users yet: run `etcdctl auth enable`, or leave the user out".to_owned();
    }
    if text.contains("invalid user ID or password") {
        return "there is no such user, or it has another password".to_owned();
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EndpointSource;

    #[test]
    fn an_error_of_a_login_names_the_user_and_what_would_be_right_whatever_its_code() {
        let mut config = SessionConfig::new(EndpointSource::List(vec!["h:2379".into()]));
        config.user = Some(("ann".to_owned(), crate::Secret::new("x")));
        let check = |code: i32, text: &str, expected: &str| {
            let status = tonic::Status::new(code.into(), text);
            let who = Caller { config: &config, endpoint: Some("h:2379") };
            let error =
                StoreError::of("connect", Repeat::Freely, &who, &etcd_client::Error::GRpcStatus(status));
            assert_eq!(error.class(), crate::Class::Fatal, "{error}");
            assert!(error.to_string().contains("does not accept the user ann: "), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(
            2,
            "auth: authentication failed, password was given for no password user",
            "a client certificate of ann",
        );
        check(3, "etcdserver: authentication failed, invalid user ID or password", "another password");
        check(9, "etcdserver: authentication is not enabled", "auth enable");
        check(16, "etcdserver: invalid auth token", "invalid auth token");
        check(3, "etcdserver: revision of auth store is old", "is old");
        check(2, "auth: revision in header is old", "is old");
    }
}
