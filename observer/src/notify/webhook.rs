//! Messages to a webhook, signed by the rules of Standard Webhooks, version 1
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).

use super::http_client::{HttpClient, SendError};
use crate::clock::now;
use crate::incidents::Message;
use crate::secret_file;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::path::{Path, PathBuf};
use ureq::http::Request;

/// What a key in a file begins with.
const KEY_PREFIX: &str = "whsec_";
/// Length of a key, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

#[derive(Clone)]
pub(super) struct Webhook {
    url: String,
    secret_files: Vec<PathBuf>,
    client: HttpClient,
}

impl Webhook {
    /// Returns a webhook.
    ///
    /// # Errors
    /// Returns an error if a file of a key cannot be used.
    pub(super) fn new(url: String, secret_files: Vec<PathBuf>, client: HttpClient) -> Result<Self> {
        let webhook = Self { url, secret_files, client };
        webhook.keys()?;
        Ok(webhook)
    }

    /// Sends a message. The keys are read each time, so that they can be changed.
    pub(super) async fn send(self, message: Message) -> Result<(), SendError> {
        let client = self.client.clone();
        let request = move || {
            let keys = self.keys()?;
            let (body, timestamp) = (message.body(), now().0.to_string());
            let request = Request::post(&self.url)
                .header("content-type", "application/json")
                .header("webhook-id", &message.id)
                .header("webhook-timestamp", &timestamp)
                .header("webhook-signature", signature(&keys, &message.id, &timestamp, &body));
            Ok(request.body(body)?)
        };
        client.send(request).await
    }

    fn keys(&self) -> Result<Vec<Key>> {
        self.secret_files.iter().map(|path| read_key(path)).collect()
    }
}

/// Returns the signatures with each key.
fn signature(keys: &[Key], id: &str, timestamp: &str, body: &str) -> String {
    let signed = format!("{id}.{timestamp}.{body}");
    let one = |key| format!("v1,{}", STANDARD.encode(sign(key, signed.as_bytes())));
    keys.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn read_key(path: &Path) -> Result<Key> {
    const WHAT: &str = "the key of a webhook";
    let text = secret_file::read(WHAT, path)?;
    let bytes = text.trim().strip_prefix(KEY_PREFIX).and_then(|key| STANDARD.decode(key).ok());
    let bytes = bytes.filter(|bytes| KEY_BYTES.contains(&bytes.len()));
    let bytes = bytes.with_context(|| {
        let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
        format!("{WHAT} {}: it must hold {KEY_PREFIX} and {least} to {most} bytes in base64", path.display())
    })?;
    Ok(Key::new(HMAC_SHA256, &bytes))
}
