//! Finds out why a connection was not made, from the errors that the underlying libraries wrap into
//! each other.

use crate::certificates::SUPPORTED;
use crate::config::TlsFiles;
use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::io;

/// A connection that was not made: no request was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotConnected {
    /// The endpoint does not answer, or not in time.
    Unreachable(String),
    /// The name of the endpoint does not exist.
    NoSuchName(String),
    /// The endpoint answers, but one side does not accept the other's certificate, or the TLS
    /// handshake fails otherwise.
    Tls(String),
}

/// Returns why there is no connection. Returns `None` if there was one: the request may then have
/// arrived.
pub(crate) fn not_connected(error: &etcd_client::Error, files: &TlsFiles) -> Option<NotConnected> {
    let chain = chain(error);
    // A handshake error can also follow a connection that seemed to be made: with TLS 1.3 the
    // server checks the client certificate after the client has finished its handshake.
    let handshake = chain.iter().find_map(|error| match error.downcast_ref::<rustls::Error>() {
        Some(error) => tls(error, files),
        None => alert(&error.to_string(), files),
    });
    if let Some(why) = handshake {
        return Some(NotConnected::Tls(why));
    }
    if let Some(at) = chain.iter().position(|error| error.is::<tonic::ConnectError>()) {
        return Some(connect(&chain[at + 1..]));
    }
    let says = |text: &str| chain.iter().any(|error| error.to_string() == text);
    // hyper reports these two errors for a request that it has not begun to send.
    if says("operation was canceled") && says("connection closed") {
        let hint = hint(files);
        return Some(NotConnected::Unreachable(format!("the server closed the connection at once{hint}")));
    }
    None
}

/// Returns how an answer was lost. Returns `None` if the error comes from the store itself.
pub(crate) fn describe(error: &etcd_client::Error, files: &TlsFiles) -> Option<String> {
    use io::ErrorKind as Kind;
    let chain = chain(error);
    let innermost = chain.last()?;
    let ended = [Kind::BrokenPipe, Kind::ConnectionReset, Kind::ConnectionAborted, Kind::UnexpectedEof];
    let is_cut = kind(&chain).is_some_and(|kind| ended.contains(&kind));
    Some(format!("{innermost}{}", if is_cut { hint(files) } else { String::new() }))
}

/// Returns a hint for a connection that was cut: a server that does not accept a client may close
/// the connection before the reason arrives.
fn hint(files: &TlsFiles) -> String {
    match &files.cert {
        _ if files.is_empty() => String::new(),
        None => "; if it wants a client certificate: cert and key name one".to_owned(),
        Some(cert) => format!("; it may not accept the client certificate {}", cert.display()),
    }
}

/// Returns the error and the errors that it wraps, outermost first. For an I/O error `get_ref` is
/// used, because its `source` skips the error that it wraps directly.
fn chain(error: &etcd_client::Error) -> Vec<&(dyn Error + 'static)> {
    let outermost: Option<&(dyn Error + 'static)> = match error {
        etcd_client::Error::GRpcStatus(status) => status.source(),
        etcd_client::Error::TransportError(error) => Some(error),
        _ => None,
    };
    fn wrapped<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    }
    std::iter::successors(outermost, |error| wrapped(*error)).collect()
}

fn kind(chain: &[&(dyn Error + 'static)]) -> Option<io::ErrorKind> {
    chain.iter().find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind)
}

fn connect(causes: &[&(dyn Error + 'static)]) -> NotConnected {
    let innermost = causes.last().map(ToString::to_string).unwrap_or_default();
    NotConnected::Unreachable(match kind(causes) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused: nothing listens there".to_owned(),
        Some(io::ErrorKind::TimedOut) => "no answer to the attempt to connect".to_owned(),
        _ if causes.iter().any(|error| error.to_string() == "dns error") => {
            let why = format!("the name is not found: {innermost}");
            // The texts of getaddrinfo(3) for an answer that says no, and not for a resolver that is away.
            let is_answer = ["Name or service not known", "No address associated with hostname"];
            if is_answer.iter().any(|text| innermost.contains(text)) {
                return NotConnected::NoSuchName(why);
            }
            why
        }
        _ => innermost,
    })
}

/// Returns what one side of a handshake does not accept about the other.
fn tls(error: &rustls::Error, files: &TlsFiles) -> Option<String> {
    Some(match error {
        rustls::Error::InvalidCertificate(error) => server_certificate(error, files),
        error @ rustls::Error::AlertReceived(_) => return alert(&error.to_string(), files),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS".to_owned(),
        _ => return None,
    })
}

fn server_certificate(error: &CertificateError, files: &TlsFiles) -> String {
    const CLOCK: &str = "check the clock of this machine if it should be good";
    match error {
        // A bad signature means an authority with the same name but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match &files.cacert {
            Some(file) => format!("the certificate of the server is not trusted by {}", file.display()),
            None => "the certificate of the server is not trusted: cacert names no authority".to_owned(),
        },
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of the server has ended; {CLOCK}")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of the server is not good yet; {CLOCK}")
        }
        error if error.to_string().contains("UnsupportedCertVersion") => {
            "the certificate of the server is not X.509 version 3".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "the certificate of the server, or one between it and its authority, has a key or a signature that is not supported; {SUPPORTED}"
        ),
        error => format!("the certificate of the server: {error}"),
    }
}

/// Alerts by which a server refuses the certificate of a client, or the lack of one.
const ABOUT_THE_CLIENT: [AlertDescription; 9] = [
    AlertDescription::NoCertificate,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
    AlertDescription::CertificateRequired,
];
/// Alerts that occur only in a handshake and do not concern the client certificate.
const ABOUT_THE_HANDSHAKE: [AlertDescription; 4] = [
    AlertDescription::HandshakeFailure,
    AlertDescription::ProtocolVersion,
    AlertDescription::UnrecognisedName,
    AlertDescription::NoApplicationProtocol,
];

/// Describes the alert by which the server ended a handshake. The alert is recognised by its text,
/// because the HTTP/2 library keeps nothing else of it.
fn alert(text: &str, files: &TlsFiles) -> Option<String> {
    let says = |alert: &&AlertDescription| text == rustls::Error::AlertReceived(**alert).to_string();
    if let Some(alert) = ABOUT_THE_HANDSHAKE.iter().find(says) {
        return Some(format!("the server ended the handshake: {alert:?}"));
    }
    let alert = ABOUT_THE_CLIENT.iter().find(says)?;
    Some(match &files.cert {
        None => "the server wants a client certificate: cert and key name one".to_owned(),
        Some(file) => {
            format!("the server does not accept the client certificate {}: {alert:?}", file.display())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(cert: Option<&str>, cacert: Option<&str>) -> TlsFiles {
        TlsFiles { cacert: cacert.map(Into::into), cert: cert.map(Into::into), key: cert.map(Into::into) }
    }

    #[test]
    fn a_handshake_that_failed_says_whose_certificate_is_not_accepted() {
        use rustls::Error::{AlertReceived, InvalidCertificate};
        let check = |error: rustls::Error, files: TlsFiles, expected: Option<&str>| {
            assert_eq!(tls(&error, &files).as_deref(), expected, "{error:?}");
        };
        let unknown = || InvalidCertificate(CertificateError::UnknownIssuer);
        check(unknown(), files(None, Some("ca")), Some("the certificate of the server is not trusted by ca"));
        check(
            unknown(),
            files(None, None),
            Some("the certificate of the server is not trusted: cacert names no authority"),
        );
        check(
            InvalidCertificate(CertificateError::NotValidYet),
            files(None, None),
            Some(
                "the certificate of the server is not good yet; check the clock of this machine if it should be good",
            ),
        );
        check(
            AlertReceived(AlertDescription::CertificateRequired),
            files(None, Some("ca")),
            Some("the server wants a client certificate: cert and key name one"),
        );
        check(
            AlertReceived(AlertDescription::UnknownCA),
            files(Some("c"), Some("ca")),
            Some("the server does not accept the client certificate c: UnknownCA"),
        );
        // These alerts can also end an established connection.
        check(AlertReceived(AlertDescription::InternalError), files(None, None), None);
        check(AlertReceived(AlertDescription::CloseNotify), files(Some("c"), None), None);
    }
}
