//! The canonical form of a manifest and of a spec: JSON with sorted keys, with defaults filled in and without blanks.
//! Two files that mean the same have the same canonical form, and so the same digest.

use crate::model::{Manifest, Service, Spec};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The SHA-256 of a canonical form, as 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Returns the digest of a text.
    pub fn of(text: &str) -> Self {
        let hash = Sha256::digest(text.as_bytes());
        Self(hash.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error of a canonical form that cannot be read back.
#[derive(Debug, thiserror::Error)]
#[error("this is no canonical form that this version knows: {0}")]
pub struct CanonicalError(#[from] serde_json::Error);

macro_rules! canonical {
    ($type:ident, $is_consistent:expr) => {
        impl $type {
            /// Returns the canonical form.
            pub fn canonical(&self) -> String {
                canonical_text(self)
            }

            /// Returns the digest of the canonical form.
            pub fn digest(&self) -> Digest {
                Digest::of(&self.canonical())
            }

            /// Reads a canonical form back.
            ///
            /// # Errors
            /// Returns an error if a value is wrong, if a field is not known, or if fields contradict each other.
            pub fn from_canonical(text: &str) -> Result<Self, CanonicalError> {
                let value: Self = serde_json::from_str(text)?;
                // A field that is not known would be lost silently, because flattened types cannot refuse it.
                if value.canonical() != canonical_text(&serde_json::from_str::<Value>(text)?) {
                    return Err(error("a field is unknown, or its value is not written as usual"));
                }
                let is_consistent: fn(&Self) -> bool = $is_consistent;
                if is_consistent(&value) { Ok(value) } else { Err(error("fields contradict each other")) }
            }
        }
    };
}

canonical!(Manifest, |manifest| manifest.services.values().all(Service::is_consistent));
canonical!(Service, Service::is_consistent);
canonical!(Spec, Spec::is_consistent);

fn error(what: &str) -> CanonicalError {
    CanonicalError(serde::de::Error::custom(what))
}

/// Returns the value of a part of a manifest with which differences are computed.
pub(crate) fn value_of(part: &impl Serialize) -> Value {
    // Names, numbers and text only: such a value can always be represented.
    serde_json::to_value(part).unwrap_or_default()
}

fn canonical_text(part: &impl Serialize) -> String {
    let mut text = String::new();
    write_sorted(&value_of(part), &mut text);
    text
}

/// Writes a value with sorted keys. `serde_json` sorts them too, but only until some crate of the build switches its
/// feature `preserve_order` on.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            text.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_sorted(&fields[key], text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_sorted(item, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string())
        }
    }
}
