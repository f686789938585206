//! A listener that encrypts. The files of the certificate are read again when they change, because certificates are
//! renewed while the observer runs.

use anyhow::{Context, Result};
use etcd_session::{TlsFiles, check_certificates};
use http_server::Source;
use planning::settings::ServerTls;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Time between two looks at the files.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The certificate that clients are shown.
pub(crate) struct Certificate {
    files: ServerTls,
    shown: RwLock<ReadFiles>,
}

/// What was read from the files.
struct ReadFiles {
    texts: [Vec<u8>; 2],
    key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error if they cannot be used now.
    pub(crate) fn open(files: ServerTls) -> Result<Arc<Self>> {
        let shown = RwLock::new(read(&files)?);
        Ok(Arc::new(Self { files, shown }))
    }

    /// Reads the files again whenever they change. What cannot be used is not shown.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut failed = false;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let is_same = texts(&self.files).is_ok_and(|texts| texts == self.shown().texts);
            if is_same {
                failed = false;
                continue;
            }
            match read(&self.files) {
                Ok(new) => {
                    tracing::info!("the certificate {} was read again", self.files.cert.display());
                    *self.shown.write().unwrap_or_else(PoisonError::into_inner) = new;
                    failed = false;
                }
                // The files are replaced one after the other.
                Err(error) if !failed => {
                    tracing::error!("{error:#}; the certificate that was read before is shown");
                    failed = true;
                }
                Err(_) => {}
            }
        }
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

fn read(files: &ServerTls) -> Result<ReadFiles> {
    let checked = TlsFiles { cert: Some(files.cert.clone()), key: Some(files.key.clone()), cacert: None };
    // It says best what is wrong.
    check_certificates(&checked)?;
    let texts = texts(files)?;
    let chain = CertificateDer::pem_slice_iter(&texts[0]).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(&texts[1]);
    let name = || files.cert.display().to_string();
    let key = CertifiedKey::from_der(chain.with_context(name)?, key.with_context(name)?, &default_provider());
    Ok(ReadFiles { texts, key: Arc::new(key.with_context(name)?) })
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
