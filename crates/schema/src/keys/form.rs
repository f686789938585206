//! How the values of keys are written as bytes.

use crate::codec::{self, ValueError, VersionError};
use crate::health::Health;
use crate::names::{Version, quoted};
use crate::records::{Closing, RecordError, ServiceRecord, StatusRecord, StoreIdentity};
use crate::time::EpochSeconds;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::marker::PhantomData;

/// A form of values. A type with a form of its own implements this itself; the other records are [`Json`].
pub trait Form {
    /// What is read and written.
    type Value;
    /// Why bytes cannot be read.
    type Error: std::error::Error + Send + Sync + 'static;
    /// The first words of the description of such a value in `docs/keys.md`.
    const WORDS: &'static str;

    /// Reads a value of the store.
    ///
    /// # Errors
    /// Returns an error if the bytes do not have this form.
    fn read(bytes: &[u8]) -> Result<Self::Value, Self::Error>;

    /// Writes a value as it is stored.
    fn write(value: &Self::Value) -> String;
}

/// Why a value does not have the form of its key.
pub(crate) type FormError = Box<dyn std::error::Error + Send + Sync>;

/// Reads a value, and returns it as this program writes it.
pub(super) fn rewrite<F: Form>(value: &[u8]) -> Result<String, FormError> {
    Ok(F::write(&F::read(value)?))
}

/// A record as JSON with a format version.
#[derive(Debug)]
pub struct Json<T>(PhantomData<T>);

impl<T: Serialize + DeserializeOwned> Form for Json<T> {
    type Value = T;
    type Error = ValueError;
    const WORDS: &'static str = "JSON";
    fn read(bytes: &[u8]) -> Result<T, ValueError> {
        codec::read(bytes)
    }
    fn write(value: &T) -> String {
        codec::write(value)
    }
}

/// Text without a rule.
#[derive(Debug)]
pub struct Text;

impl Form for Text {
    type Value = String;
    type Error = ValueError;
    const WORDS: &'static str = "text";
    fn read(bytes: &[u8]) -> Result<String, ValueError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ValueError::NotText)
    }
    fn write(value: &String) -> String {
        value.clone()
    }
}

/// Nothing: the key alone says everything. Whatever is stored under it means the same.
#[derive(Debug)]
pub struct Empty;

impl Form for Empty {
    type Value = ();
    type Error = Infallible;
    const WORDS: &'static str = "empty";
    fn read(_: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }
    fn write((): &()) -> String {
        String::new()
    }
}

impl Form for Version {
    type Value = Self;
    type Error = VersionError;
    const WORDS: &'static str = "text";
    fn read(bytes: &[u8]) -> Result<Self, VersionError> {
        codec::read_version(bytes)
    }
    fn write(value: &Self) -> String {
        value.to_string()
    }
}

/// A text that is no health.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is no health", quoted(.0))]
pub struct NotAHealth(String);

impl Form for Health {
    type Value = Self;
    type Error = NotAHealth;
    const WORDS: &'static str = "text";
    fn read(bytes: &[u8]) -> Result<Self, NotAHealth> {
        Self::read(bytes).ok_or_else(|| NotAHealth(String::from_utf8_lossy(bytes).into_owned()))
    }
    fn write(value: &Self) -> String {
        value.to_string()
    }
}

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is no time", quoted(.0))]
pub struct NotATime(String);

impl Form for EpochSeconds {
    type Value = Self;
    type Error = NotATime;
    const WORDS: &'static str = "epoch seconds";
    fn read(bytes: &[u8]) -> Result<Self, NotATime> {
        let seconds = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok());
        seconds.map(Self).ok_or_else(|| NotATime(String::from_utf8_lossy(bytes).into_owned()))
    }
    fn write(value: &Self) -> String {
        value.0.to_string()
    }
}

/// The original tool wrote epoch seconds.
impl Form for StatusRecord {
    type Value = Self;
    type Error = ValueError;
    const WORDS: &'static str = "JSON";
    fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        Self::read(bytes)
    }
    fn write(value: &Self) -> String {
        codec::write(value)
    }
}

/// The identity of a store has a format of its own.
impl Form for StoreIdentity {
    type Value = Self;
    type Error = ValueError;
    const WORDS: &'static str = "JSON";
    fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        Self::read(bytes)
    }
    fn write(value: &Self) -> String {
        value.write()
    }
}

/// Older agents wrote only the name of their host.
impl Form for Closing {
    type Value = Self;
    type Error = Infallible;
    const WORDS: &'static str = "JSON";
    fn read(bytes: &[u8]) -> Result<Self, Infallible> {
        Ok(Self::read(bytes))
    }
    fn write(value: &Self) -> String {
        codec::write(value)
    }
}

/// The original tool wrote a map from interface to address. This does not compare the host in the record with that in
/// the key; [`ServiceRecord::read`] does.
impl Form for ServiceRecord {
    type Value = Self;
    type Error = RecordError;
    const WORDS: &'static str = "JSON";
    fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        Self::read_of_any(bytes)
    }
    fn write(value: &Self) -> String {
        value.write()
    }
}
