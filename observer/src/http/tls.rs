//! A listener that encrypts. The files of the certificate are read again when they change, because certificates are
//! renewed while the observer runs.

use crate::clock::now;
use crate::secret_file;
use anyhow::{Context, Result};
use etcd_session::{TlsFiles, certificate_ends, check_certificates};
use http_server::Source;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use schema::records::certificate_warning;
use schema::time::EpochSeconds;
use settings::ServerTls;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Time between two looks at the files.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two warnings that the certificate ends.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The certificate that clients are shown.
pub(crate) struct Certificate {
    files: ServerTls,
    shown: RwLock<ReadFiles>,
}

/// What was read from the files.
struct ReadFiles {
    texts: [Vec<u8>; 2],
    key: Arc<CertifiedKey>,
    /// When the certificate ends, if this library can tell.
    end: Option<EpochSeconds>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error if they cannot be used. A certificate that has ended is used, because the observer has more to do
    /// than to show it.
    pub(crate) fn open(files: ServerTls) -> Result<Arc<Self>> {
        let checked = check(&files);
        if end_of(&files).is_none_or(|end| end > now()) {
            checked?;
        }
        let shown = RwLock::new(read(&files)?);
        Ok(Arc::new(Self { files, shown }))
    }

    /// Returns when the certificate ends that clients are shown.
    pub(crate) fn end(&self) -> Option<EpochSeconds> {
        self.shown().end
    }

    /// Reads the files again whenever they change, and warns before the certificate ends. What cannot be used is not shown.
    pub(crate) async fn watch(self: Arc<Self>) {
        let (mut found, mut logged, mut warned_at) = (None, None, None);
        loop {
            if warned_at.is_none_or(|at: Instant| at.elapsed() >= WARNING_INTERVAL) {
                self.warn_of_end();
                warned_at = Some(Instant::now());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            let is_same = texts(&self.files).is_ok_and(|texts| texts == self.shown().texts);
            if is_same {
                (found, logged) = (None, None);
                continue;
            }
            match check(&self.files).and_then(|()| read(&self.files)) {
                Ok(new) => {
                    tracing::info!("the certificate {} was read again", self.files.cert.display());
                    *self.shown.write().unwrap_or_else(PoisonError::into_inner) = new;
                    (found, logged, warned_at) = (None, None, None);
                }
                Err(error) => {
                    let problem = Some(format!("{error:#}"));
                    // The files are replaced one after the other, so only what is found twice is a problem.
                    if found == problem && logged != problem {
                        tracing::error!("{error:#}; the certificate that was read before is shown");
                        logged.clone_from(&problem);
                    }
                    found = problem;
                }
            }
        }
    }

    fn warn_of_end(&self) {
        let end = self
            .end()
            .and_then(|end| certificate_warning(&self.files.cert.display().to_string(), end, now()));
        end.iter().for_each(|warning| tracing::warn!("{warning}; it is the one that the observer shows"));
    }

    fn shown(&self) -> std::sync::RwLockReadGuard<'_, ReadFiles> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown().key.clone())
    }
}

fn texts(files: &ServerTls) -> io::Result<[Vec<u8>; 2]> {
    Ok([std::fs::read(&files.cert)?, std::fs::read(&files.key)?])
}

fn tls_files(files: &ServerTls) -> TlsFiles {
    TlsFiles { cert: Some(files.cert.clone()), key: Some(files.key.clone()), cacert: None }
}

fn end_of(files: &ServerTls) -> Option<EpochSeconds> {
    certificate_ends(&tls_files(files)).into_values().next()
}

/// Says best what is wrong with the files.
fn check(files: &ServerTls) -> Result<()> {
    secret_file::read("http.key", &files.key)?;
    Ok(check_certificates(&tls_files(files))?)
}

fn read(files: &ServerTls) -> Result<ReadFiles> {
    let texts = texts(files)?;
    let chain = CertificateDer::pem_slice_iter(&texts[0]).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(&texts[1]);
    let name = || files.cert.display().to_string();
    let key = CertifiedKey::from_der(chain.with_context(name)?, key.with_context(name)?, &default_provider());
    Ok(ReadFiles { texts, key: Arc::new(key.with_context(name)?), end: end_of(files) })
}

/// Accepts connections, and encrypts them.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// Returns a listener that shows clients a certificate.
    ///
    /// # Errors
    /// Returns an error if the library of TLS does not take its settings.
    pub(crate) fn new(listener: TcpListener, certificate: Arc<Certificate>) -> Result<Self> {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let mut config = config
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { listener, acceptor: Arc::new(config).into() })
    }
}

impl Source for TlsListener {
    type Accepted = TcpStream;
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<TcpStream> {
        Source::accept(&self.listener).await
    }

    async fn open(&self, accepted: TcpStream) -> io::Result<Self::Stream> {
        self.acceptor.accept(accepted).await
    }
}
