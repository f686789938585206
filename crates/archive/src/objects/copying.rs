//! Bytes on their way into an object and out of it, and what became of them.

use super::error::ObjectProblem;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

/// Bytes that are copied at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// What became of a call that creates an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object was created by this call.
    Now,
    /// An object with this name was there. It was not changed.
    Existed,
}

/// What an object is to hold.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    Bytes(&'a [u8]),
    /// A file from its beginning. Its position is neither used nor changed, so that an upload can begin again.
    File {
        file: &'a File,
        length: u64,
    },
}

impl<'a> Content<'a> {
    /// Returns the content of a regular file.
    pub(super) fn of_file(file: &'a File) -> Result<Self, ObjectProblem> {
        let metadata =
            file.metadata().map_err(|error| ObjectProblem::of_file("the file to upload", &error))?;
        if !metadata.is_file() {
            return Err(ObjectProblem::File {
                why: "the file to upload is not a regular file".to_owned(),
                is_permanent: true,
            });
        }
        Ok(Self::File { file, length: metadata.len() })
    }

    /// Returns the length in bytes.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// Returns a reader from the beginning.
    pub(super) fn reader(self) -> ContentReader<'a> {
        ContentReader { content: self, at: 0, error: None }
    }
}

/// Reads a content, exactly as many bytes as its length says.
pub(super) struct ContentReader<'a> {
    content: Content<'a>,
    at: u64,
    /// Why the content could not be read. An HTTP client mixes this error with those of the connection.
    pub(super) error: Option<ObjectProblem>,
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.content.length() - self.at;
        let wanted = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let read = match self.content {
            Content::Bytes(bytes) => {
                let at = usize::try_from(self.at).unwrap_or(usize::MAX);
                buffer[..wanted].copy_from_slice(&bytes[at..at + wanted]);
                Ok(wanted)
            }
            Content::File { file, .. } => match file.read_at(&mut buffer[..wanted], self.at) {
                Ok(0) if wanted > 0 => Err(io::Error::other("it became shorter")),
                read => read,
            },
        };
        match &read {
            Ok(count) => self.at += *count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.error = Some(ObjectProblem::of_file("the file to upload", error)),
        }
        read
    }
}

/// Copies an object of at most `max` bytes, and returns its length. `of_read` says what an error of the reader means.
pub(super) fn copy(
    from: &mut dyn Read,
    max: u64,
    into: &mut dyn Write,
    of_read: impl Fn(io::Error) -> ObjectProblem,
) -> Result<u64, ObjectProblem> {
    let of_write = |error: &io::Error| ObjectProblem::of_file("what takes the object", error);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut length = 0_u64;
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(of_read(error)),
        };
        length += count as u64;
        if length > max {
            return Err(ObjectProblem::TooLarge { max });
        }
        into.write_all(&chunk[..count]).map_err(|error| of_write(&error))?;
    }
    into.flush().map_err(|error| of_write(&error))?;
    Ok(length)
}
