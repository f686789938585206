//! The digest by which a report vouches for a bundle.

use ring::digest::{Context, SHA256};
use std::io::{self, Write};

/// A writer that computes the SHA-256 (FIPS 180-4) of what it writes.
pub struct Digested<W> {
    to: W,
    digest: Context,
    bytes: u64,
}

impl<W: Write> Digested<W> {
    pub fn new(to: W) -> Self {
        Self { to, digest: Context::new(&SHA256), bytes: 0 }
    }

    /// Returns the writer, the digest in hexadecimal, and the number of bytes.
    pub fn finish(self) -> (W, String, u64) {
        let digest = self.digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.to, digest, self.bytes)
    }
}

impl<W: Write> Write for Digested<W> {
    fn write(&mut self, new: &[u8]) -> io::Result<usize> {
        let count = self.to.write(new)?;
        self.digest.update(&new[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
