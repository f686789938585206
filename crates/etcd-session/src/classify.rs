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
        // The numbers are those of google.rpc.Code.
        match i32::from(status.code()) {
            14 if detail.contains("no leader") => Self::Unreachable { operation, detail },
            8 if message.contains("too many requests") => Self::Busy { operation },
            8 if message.contains("database space exceeded") => Self::NoSpace { operation },
            7 => Self::PermissionDenied { operation, user: who.user() },
            16 => Self::Unauthenticated { operation, detail },
            3 if message.contains("authentication failed") || message.contains("user name is empty") => {
                Self::Unauthenticated { operation, detail }
            }
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
