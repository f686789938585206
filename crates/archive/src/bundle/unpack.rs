//! Unpacks a bundle that another host wrote, and may have written to do harm.

use super::contents::{ABOUT, About, FORMAT, UNPACKED_MAX_BYTES, UNPACKED_MAX_FILES};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Largest window of Zstandard that is decoded, as a power of two: 8 MiB, as RFC 8878 recommends.
const WINDOW_LOG_MAX: u32 = 23;
/// Largest number of directories and the file in a path.
const DEPTH_MAX: usize = 64;
/// Largest `bundle.json`, in bytes.
const ABOUT_MAX_BYTES: u64 = 64 * 1024;

/// Why a bundle was not unpacked. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The directory cannot be made or written, or the archive cannot be read.
    #[error("{path}: {error}")]
    System {
        /// What was read or written.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    #[error("this is not a bundle: {0}")]
    Refused(String),
    /// A newer program wrote it.
    #[error("it has format {0}; this program reads formats up to {FORMAT}: use a newer one")]
    Newer(u32),
}

/// Unpacks a bundle into a new directory of mode 0700. Only regular files with harmless paths are accepted, at most
/// [`UNPACKED_MAX_FILES`] of at most [`UNPACKED_MAX_BYTES`]. Returns what it is about.
///
/// # Errors
/// Returns an error if the directory exists or cannot be written, or if the bundle is refused. The directory is removed
/// again then.
pub fn unpack(bundle: impl Read, into: &Path) -> Result<About, UnpackError> {
    let in_path = |path: &Path, error| UnpackError::System { path: path.display().to_string(), error };
    DirBuilder::new().mode(0o700).create(into).map_err(|error| in_path(into, error))?;
    let unpacked = unpack_all(bundle, into);
    if unpacked.is_err() {
        std::fs::remove_dir_all(into).map_err(|error| in_path(into, error))?;
    }
    unpacked
}

fn unpack_all(bundle: impl Read, into: &Path) -> Result<About, UnpackError> {
    let damaged = |error: io::Error| UnpackError::Refused(error.to_string());
    let mut decoder = zstd::Decoder::new(bundle).map_err(damaged)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(damaged)?;
    // The heads of the parts count as well, so that many empty ones end too.
    let limited = decoder.take(UNPACKED_MAX_BYTES);
    let mut archive = tar::Archive::new(limited);
    let (mut files, mut about) = (0, None);
    // Raw, because extensions of the format would be read into memory, however long they are.
    for entry in archive.entries().map_err(damaged)?.raw(true) {
        let mut entry = entry.map_err(damaged)?;
        let name = harmless(&entry.path_bytes())?;
        let kind = entry.header().entry_type();
        if kind != tar::EntryType::Regular {
            return Err(UnpackError::Refused(format!("{} is no regular file ({kind:?})", name.display())));
        }
        files += 1;
        if files > UNPACKED_MAX_FILES {
            return Err(UnpackError::Refused(format!("it has more than {UNPACKED_MAX_FILES} files")));
        }
        let path = into.join(&name);
        let in_path = |error| UnpackError::System { path: path.display().to_string(), error };
        let parent = path.parent().unwrap_or(into);
        DirBuilder::new().mode(0o700).recursive(true).create(parent).map_err(in_path)?;
        let mut options = OpenOptions::new();
        // The directory is new and its own, so that no link can stand in it.
        let mut file =
            options.read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(in_path)?;
        let size = entry.size();
        let copied = io::copy(&mut entry, &mut file).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => in_path(error),
            _ => damaged(error),
        })?;
        if copied < size {
            let limit = UNPACKED_MAX_BYTES / 1024 / 1024;
            let why = format!("{} is not complete, or all is more than {limit} MiB", name.display());
            return Err(UnpackError::Refused(why));
        }
        if files == 1 {
            file.rewind().map_err(in_path)?;
            about = Some(read_about(&name, file)?);
        }
    }
    // The checksum of the whole comes after the archive.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(damaged)?;
    match about {
        Some(about) if rest.limit() > 0 => Ok(about),
        _ => Err(UnpackError::Refused("it has no files, or does not end".to_owned())),
    }
}

/// Reads the first part.
fn read_about(name: &Path, file: impl Read) -> Result<About, UnpackError> {
    let unreadable = |error: &dyn std::fmt::Display| UnpackError::Refused(format!("{ABOUT}: {error}"));
    if name != Path::new(ABOUT) {
        return Err(UnpackError::Refused(format!("it begins with {}, not with {ABOUT}", name.display())));
    }
    let mut text = String::new();
    file.take(ABOUT_MAX_BYTES).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    match value["format"].as_u64() {
        Some(format) if format > u64::from(FORMAT) => {
            return Err(UnpackError::Newer(u32::try_from(format).unwrap_or(u32::MAX)));
        }
        _ => {}
    }
    serde_json::from_value(value).map_err(|error| unreadable(&error))
}

/// Returns the path of a part. It goes nowhere but down, and has no characters that a terminal acts on.
fn harmless(bytes: &[u8]) -> Result<PathBuf, UnpackError> {
    let shown = String::from_utf8_lossy(bytes).escape_debug().to_string();
    let refused = |why: &str| UnpackError::Refused(format!("the path \"{shown}\" {why}"));
    let text = std::str::from_utf8(bytes).map_err(|_| refused("is no text"))?;
    if text.chars().any(char::is_control) {
        return Err(refused("has control characters"));
    }
    let path = PathBuf::from(text);
    if path.components().count() > DEPTH_MAX {
        return Err(refused("is too deep"));
    }
    if path.components().all(|part| matches!(part, Component::Normal(_))) && !text.is_empty() {
        Ok(path)
    } else {
        Err(refused("leads out of the directory"))
    }
}
