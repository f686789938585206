//! Reads and checks the files of a TLS connection before a connection is tried, because the error
//! of the other side afterwards does not name the cause. Also tells when certificates expire.

use crate::config::TlsFiles;
use crate::error::StoreError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, RootCertStore};
use schema::records::certificate_warning;
use schema::time::EpochSeconds;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode as _;
use x509_cert::time::Time;

/// The kinds of keys and signatures that the TLS library knows.
pub(crate) const SUPPORTED: &str =
    "RSA, Ed25519, and ECDSA with P-256 or P-384 and SHA-256 or SHA-384 are supported";
/// What is in a certificate with a key on the curve P-521: the object identifier 1.3.132.0.35 as DER.
const P521: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];

/// Contents of the TLS files after all checks passed.
#[derive(Debug)]
pub(crate) struct Pem {
    pub(crate) authorities: Option<Vec<u8>>,
    /// Certificate chain and private key, both as PEM text.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Checks the files of a TLS connection without connecting.
///
/// # Errors
/// Returns the first problem found: a file cannot be read or lacks the expected content,
/// certificate and key do not belong together, or the certificate is expired or not yet valid.
pub fn check_certificates(files: &TlsFiles) -> Result<(), StoreError> {
    read(files).map(drop)
}

/// Reads the files and checks that they can be used now.
pub(crate) fn read(files: &TlsFiles) -> Result<Pem, StoreError> {
    check_at(files, now()).map_err(|detail| StoreError::Certificate { detail })
}

fn check_at(files: &TlsFiles, now: EpochSeconds) -> Result<Pem, String> {
    let authorities = files.cacert.as_deref().map(read_authorities).transpose()?;
    let identity = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => Some(read_identity(cert, key, now)?),
        _ => None,
    };
    Ok(Pem { authorities, identity })
}

/// Reads the file of the authorities. One usable certificate is enough, because the file may also
/// hold certificates that only other programs understand.
fn read_authorities(path: &Path) -> Result<Vec<u8>, String> {
    let (text, certificates) = read_certificates("the file of the authorities (cacert)", path)?;
    let mut refused = None;
    let usable = certificates.into_iter().any(|certificate| {
        if certificate.windows(P521.len()).any(|bytes| bytes == P521) {
            refused = Some(format!("a key on the curve P-521 is not supported; {SUPPORTED}"));
            return false;
        }
        RootCertStore::empty().add(certificate).map_err(|error| refused = Some(error.to_string())).is_ok()
    });
    if usable {
        return Ok(text);
    }
    let why = refused.unwrap_or_default();
    Err(format!("the file of the authorities (cacert) {}: no certificate can be used: {why}", path.display()))
}

fn read_identity(cert: &Path, key: &Path, now: EpochSeconds) -> Result<(Vec<u8>, Vec<u8>), String> {
    let (cert_text, chain) = read_certificates("the certificate", cert)?;
    // A certificate that this library cannot decode is left to the TLS library to judge.
    if let Some(certificate) = chain.first().and_then(decode) {
        check_version(cert, &certificate)?;
        check_time(cert, &certificate, now)?;
    }
    let key_text = read_file("the key", key)?;
    let Ok(private) = PrivateKeyDer::from_pem_slice(&key_text) else {
        let is_encrypted = key_text.windows(9).any(|word| word == b"ENCRYPTED");
        let what = if is_encrypted {
            "it is encrypted; one without a passphrase is needed"
        } else {
            "no key in PEM is in it"
        };
        return Err(format!("the key {}: {what}", key.display()));
    };
    let provider = rustls::crypto::ring::default_provider();
    match rustls::sign::CertifiedKey::from_der(chain, private, &provider) {
        Ok(_) => Ok((cert_text, key_text)),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(format!("the key {} does not belong to the certificate {}", key.display(), cert.display()))
        }
        // The library says the same of each kind of key that it does not know.
        Err(rustls::Error::General(_)) => {
            Err(format!("the key {}: this kind of key is not supported; {SUPPORTED}", key.display()))
        }
        Err(error) => {
            Err(format!("the certificate {} and the key {}: {error}", cert.display(), key.display()))
        }
    }
}

fn check_version(path: &Path, certificate: &Certificate) -> Result<(), String> {
    let number = match certificate.tbs_certificate().version() {
        Version::V1 => 1,
        Version::V2 => 2,
        Version::V3 => return Ok(()),
    };
    Err(format!(
        "the certificate {} is X.509 version {number}; version 3 is needed: make it with extensions \
         (openssl x509 -req … -extfile FILE, or a request with -addext and then -copy_extensions copy)",
        path.display()
    ))
}

fn check_time(path: &Path, certificate: &Certificate, now: EpochSeconds) -> Result<(), String> {
    let validity = certificate.tbs_certificate().validity();
    if now >= seconds(validity.not_after) {
        let ended = certificate_warning(&path.display().to_string(), seconds(validity.not_after), now);
        return Err(format!(
            "{}; check the clock of this machine if it should be good",
            ended.unwrap_or_default()
        ));
    }
    if now < seconds(validity.not_before) {
        let from = validity.not_before.to_date_time();
        return Err(format!(
            "the certificate {} is not good before {from}; check the clock of this machine",
            path.display()
        ));
    }
    Ok(())
}

/// Returns the contents of a file and the certificates in it, at least one.
fn read_certificates(what: &str, path: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), String> {
    let text = read_file(what, path)?;
    match CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok((text, certificates)),
        Ok(_) => Err(format!("{what} {}: it contains no PEM certificate", path.display())),
        Err(error) => Err(format!("{what} {}: its PEM data is invalid: {error}", path.display())),
    }
}

fn read_file(what: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{what} {} cannot be read: {error}", path.display()))
}

fn decode(certificate: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::from_der(certificate).ok()
}

/// Returns the common name of the client certificate, which etcd uses as the user name; `None` if there is none.
pub fn common_name(files: &TlsFiles) -> Option<String> {
    let certificate = load(files.cert.as_deref()?)?.into_iter().next()?;
    certificate.tbs_certificate().subject().common_name().ok()?.map(String::from)
}

/// Returns when the certificates in these files expire, by file. For a client certificate the first
/// one in the file counts; for authorities, the one that is valid longest. A file that cannot be
/// read is left out, because connecting reports that error.
pub fn certificate_ends(files: &TlsFiles) -> BTreeMap<String, EpochSeconds> {
    let own = files.cert.as_deref().and_then(|path| Some((path, *ends(path)?.first()?)));
    let authorities = files.cacert.as_deref().and_then(|path| Some((path, *ends(path)?.iter().max()?)));
    own.into_iter().chain(authorities).map(|(path, end)| (path.display().to_string(), end)).collect()
}

fn ends(path: &Path) -> Option<Vec<EpochSeconds>> {
    let end = |certificate: &Certificate| seconds(certificate.tbs_certificate().validity().not_after);
    Some(load(path)?.iter().map(end).collect())
}

fn load(path: &Path) -> Option<Vec<Certificate>> {
    let (_, certificates) = read_certificates("", path).ok()?;
    certificates.iter().map(decode).collect()
}

fn seconds(time: Time) -> EpochSeconds {
    EpochSeconds(i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX))
}

fn now() -> EpochSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Returns a message that names an expired certificate, for the error of a failed connection.
pub(crate) fn ended(files: &TlsFiles) -> Option<String> {
    let now = now();
    let (file, end) = certificate_ends(files).into_iter().find(|(_, end)| *end <= now)?;
    Some(format!("{} by this machine's clock", certificate_warning(&file, end, now)?))
}
