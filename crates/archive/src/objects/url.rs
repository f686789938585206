//! URLs of object stores.

use super::name::{NameError, ObjectName, check_parts};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest prefix of a URL of S3, in bytes. With it, a slash and the longest name, a key has 1024 bytes, which S3 allows.
pub const PREFIX_MAX_BYTES: usize = 123;
/// Longest path of a directory, in bytes. Linux allows 4095 for a whole path.
const DIRECTORY_MAX_BYTES: usize = 3000;

/// The URL of an object store: `s3://BUCKET`, `s3://BUCKET/PREFIX` or `file:///ABSOLUTE/DIRECTORY`. A slash at the end is
/// accepted and not kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectsUrl(ObjectLocation);

/// Where the objects are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ObjectLocation {
    /// A bucket of S3, and the first parts of all keys.
    Bucket {
        /// Name of the bucket.
        bucket: String,
        /// What precedes the name of each object, without a slash at its end. It may be empty.
        prefix: String,
    },
    /// A directory; the text is its path without the first slash.
    Directory(String),
}

/// Why a text is not the URL of an object store. The text is not repeated: somebody may have written a password into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("the URL of an object store is s3://BUCKET/PREFIX or file:///ABSOLUTE/DIRECTORY")]
    Scheme,
    /// The bucket cannot exist.
    #[error("the bucket of the URL {0}, as in s3://my-bucket/prefix")]
    Bucket(&'static str),
    /// The prefix is no part of a key.
    #[error("the prefix of the URL cannot be used: {0}")]
    Prefix(NameError),
    /// The path is not absolute.
    #[error("the directory of the URL must be absolute: file:///DIRECTORY has three slashes")]
    NotAbsolute,
    /// The path cannot be used.
    #[error("the directory of the URL cannot be used: {0}")]
    Directory(NameError),
}

/// Checks the name of a bucket by the "General purpose bucket naming rules" of the Amazon S3 User Guide.
fn check_bucket(bucket: &str) -> Result<(), &'static str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !bucket.chars().all(is_allowed) {
        return Err("must consist of lower case letters, digits, dots and hyphens");
    }
    if !(3..=63).contains(&bucket.len()) {
        return Err("must have 3 to 63 characters");
    }
    if !is_end(bucket.chars().next()) || !is_end(bucket.chars().next_back()) {
        return Err("must begin and end with a letter or a digit");
    }
    if bucket.contains("..") {
        return Err("must not have two dots in a row");
    }
    if bucket.parse::<std::net::Ipv4Addr>().is_ok() {
        return Err("must not look like an IP address");
    }
    Ok(())
}

impl ObjectsUrl {
    /// Returns the URL of an object.
    pub fn join(&self, name: &ObjectName) -> String {
        format!("{self}/{name}")
    }

    /// Returns the name of the object with this URL; `None` if the URL is not one of an object below this URL.
    pub fn name_of(&self, url: &str) -> Option<ObjectName> {
        url.strip_prefix(&self.to_string())?.strip_prefix('/')?.parse().ok()
    }

    pub(super) fn place(&self) -> &ObjectLocation {
        &self.0
    }
}

impl ObjectLocation {
    /// Returns the path of a directory.
    pub(super) fn path(directory: &str) -> PathBuf {
        PathBuf::from(format!("/{directory}"))
    }
}

impl FromStr for ObjectsUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let checked = |text: &str, max: usize| {
            let text = text.strip_suffix('/').unwrap_or(text);
            check_parts(text, max).map(|()| text.to_owned())
        };
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            check_bucket(bucket).map_err(UrlError::Bucket)?;
            let prefix = if prefix.is_empty() {
                String::new()
            } else {
                checked(prefix, PREFIX_MAX_BYTES).map_err(UrlError::Prefix)?
            };
            return Ok(Self(ObjectLocation::Bucket { bucket: bucket.to_owned(), prefix }));
        }
        let rest = text.strip_prefix("file://").ok_or(UrlError::Scheme)?;
        let directory = rest.strip_prefix('/').ok_or(UrlError::NotAbsolute)?;
        checked(directory, DIRECTORY_MAX_BYTES)
            .map(|path| Self(ObjectLocation::Directory(path)))
            .map_err(UrlError::Directory)
    }
}

impl TryFrom<String> for ObjectsUrl {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Self, UrlError> {
        text.parse()
    }
}

impl From<ObjectsUrl> for String {
    fn from(url: ObjectsUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for ObjectsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ObjectLocation::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            ObjectLocation::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            ObjectLocation::Directory(directory) => write!(f, "file:///{directory}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_bucket_or_a_directory() {
        let check = |text: &str, shown: &str| {
            let url: ObjectsUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.to_string(), shown);
            assert_eq!(shown.parse::<ObjectsUrl>().as_ref(), Ok(&url));
            let json = serde_json::to_string(&url).unwrap();
            assert_eq!(json, format!("\"{shown}\""));
            assert_eq!(serde_json::from_str::<ObjectsUrl>(&json).unwrap(), url);
        };
        check("s3://bundles", "s3://bundles");
        check("s3://bundles/", "s3://bundles");
        check("s3://my.bundles-1/site/prod", "s3://my.bundles-1/site/prod");
        check("s3://bundles/site/", "s3://bundles/site");
        check("file:///srv/bundles", "file:///srv/bundles");
        check("file:///srv/bundles/", "file:///srv/bundles");
        check("file:///tmp/.tmpA1b_2", "file:///tmp/.tmpA1b_2");
    }

    #[test]
    fn a_url_that_cannot_be_used_says_what_would_be_right() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<ObjectsUrl>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(serde_json::from_str::<ObjectsUrl>(&format!("\"{text}\"")).is_err(), "{text}");
        };
        check("", "s3://BUCKET/PREFIX or file:///ABSOLUTE/DIRECTORY");
        check("https://host/bucket", "s3://BUCKET/PREFIX");
        check("/srv/bundles", "file:///ABSOLUTE/DIRECTORY");
        check("S3://bundles", "s3://BUCKET/PREFIX");
        check("s3://", "must have 3 to 63 characters");
        check("s3://ab", "must have 3 to 63 characters");
        check(&format!("s3://{}", "b".repeat(64)), "must have 3 to 63 characters");
        check("s3://Bundles", "lower case letters");
        check("s3://key:hush@bundles", "lower case letters");
        check("s3://-bundles", "begin and end with a letter or a digit");
        check("s3://bundles.", "begin and end with a letter or a digit");
        check("s3://bun..dles", "two dots in a row");
        check("s3://192.168.0.1/x", "look like an IP address");
        check("s3://bundles//x", "the prefix of the URL cannot be used: it has an empty part");
        check("s3://bundles//", "the prefix of the URL cannot be used: it has an empty part");
        check("s3://bundles/a/../b", "a part is ..");
        check("s3://bundles/a?versions", "it contains '?'");
        check(&format!("s3://bundles/{}", "p".repeat(124)), "124 bytes; at most 123");
        check("file://srv/bundles", "file:///DIRECTORY has three slashes");
        check("file:srv", "file:///ABSOLUTE/DIRECTORY");
        check("file:///", "the directory of the URL cannot be used: it has an empty part");
        check("file:///srv/../etc", "a part is ..");
        check("file:///srv/with space", "it contains ' '");
    }

    #[test]
    fn a_url_with_a_password_is_not_repeated() {
        let error = "s3://key:hush@bundles/x".parse::<ObjectsUrl>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"));
    }

    #[test]
    fn the_name_of_an_object_is_found_in_its_url() {
        let check = |store: &str, url: &str, name: Option<&str>| {
            let store: ObjectsUrl = store.parse().unwrap();
            let found = store.name_of(url);
            assert_eq!(found.as_ref().map(ObjectName::as_str), name, "{url} in {store}");
            found.iter().for_each(|name| assert_eq!(store.join(name), url));
        };
        check("s3://bundles", "s3://bundles/a/b", Some("a/b"));
        check("s3://bundles/site", "s3://bundles/site/a", Some("a"));
        check("file:///srv/b", "file:///srv/b/a/b", Some("a/b"));
        check("s3://bundles/site", "s3://bundles/site", None);
        check("s3://bundles/site", "s3://bundles/site/", None);
        check("s3://bundles/site", "s3://bundles/site2/a", None);
        check("s3://bundles/site", "s3://bundles/a", None);
        check("s3://bundles", "s3://bundles2/a", None);
        check("s3://bundles", "file:///bundles/a", None);
        check("file:///srv/b", "file:///srv/b/../c", None);
        check("file:///srv/b", "file:///srv/b//c", None);
    }
}
