//! A certificate authority for tests with TLS.

use crate::etcd::Tls;
use std::path::PathBuf;
use std::process::Command;

/// A certificate authority of the test, created with openssl.
pub struct Authority {
    directory: tempfile::TempDir,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let authority = Self { directory: tempfile::tempdir().expect("a directory") };
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-days",
            "30",
            "-subj",
            "/CN=test authority",
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign",
        ]);
        authority
    }

    /// Returns the path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs openssl in its directory.
    ///
    /// # Panics
    /// Panics if it fails.
    pub fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .expect("openssl");
        assert!(
            output.status.success(),
            "openssl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Issues a certificate for loopback, valid for this many days from now; with 0 it has already
    /// expired.
    pub fn issue(&self, name: &str, days: u32) -> (PathBuf, PathBuf) {
        let (key, request, certificate) =
            (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
        ]);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            &certificate,
            "-days",
            &days.to_string(),
            "-copy_extensions",
            "copy",
        ]);
        (self.path(&certificate), self.path(&key))
    }

    /// Returns the files of a server with TLS.
    pub fn server(&self) -> Tls {
        let (cert, key) = self.issue("server", 30);
        Tls { cacert: self.path("ca.crt"), cert, key }
    }
}
