//! The output of a step while it runs: its last lines, in memory and in a file that others read, and its start, which
//! is mostly the whole, in another file.

use super::record::{OUTPUT, OUTPUT_MAX_BYTES, Output, WHOLE, WHOLE_MAX_BYTES};
use crate::files::Directory;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Time between two writes of the file.
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// The last bytes of a stream, at most [`OUTPUT_MAX_BYTES`].
#[derive(Default)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    skipped_lines: u64,
    is_written: bool,
}

impl Tail {
    fn push(&mut self, new: &[u8]) {
        self.bytes.extend(new);
        let excess = self.bytes.len().saturating_sub(OUTPUT_MAX_BYTES);
        self.skipped_lines += self.bytes.drain(..excess).filter(|byte| *byte == b'\n').count() as u64;
        self.is_written = false;
    }

    pub(super) fn output(&self) -> Output {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        Output { skipped_lines: self.skipped_lines, text: String::from_utf8_lossy(&bytes).into_owned() }
    }
}

/// The file with the output from its start, at most [`WHOLE_MAX_BYTES`]. Nothing depends on it, so it may fail.
pub(super) struct FullOutput {
    file: Option<(File, Directory)>,
    left: u64,
}

impl FullOutput {
    pub(super) fn create(directory: &Directory) -> Self {
        let create = || Ok::<_, io::Error>((directory.create_new(WHOLE, 0o600)?, directory.try_clone()?));
        Self { file: create().ok(), left: WHOLE_MAX_BYTES }
    }

    fn push(&mut self, new: &[u8]) {
        let count = usize::try_from(self.left).map_or(new.len(), |left| left.min(new.len()));
        self.left -= count as u64;
        if let Some((file, directory)) = &mut self.file
            && file.write_all(&new[..count]).is_err()
        {
            // One that lacks something would be taken for the whole.
            let _ = directory.remove(WHOLE);
            self.file = None;
        }
    }
}

/// Reads at full speed, however much a step prints.
pub(super) fn drain(
    mut reader: io::PipeReader,
    mut whole: FullOutput,
    tail: &Mutex<Tail>,
    drained: &mpsc::Sender<()>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                whole.push(&buffer[..count]);
                if let Ok(mut tail) = tail.lock() {
                    // Only the last bytes are kept.
                    tail.push(&buffer[..count]);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let _ = drained.send(());
}

/// Writes the output to its file again and again, if there is more. Nothing depends on the file, so it may fail.
pub(super) fn write_repeatedly(directory: &Directory, tail: &Arc<Mutex<Tail>>) -> ! {
    loop {
        std::thread::sleep(WRITE_EVERY);
        let output = match tail.lock() {
            Ok(mut tail) if !tail.is_written => {
                tail.is_written = true;
                tail.output()
            }
            _ => continue,
        };
        let _ = serde_json::to_vec(&output)
            .map_err(io::Error::from)
            .and_then(|bytes| directory.replace_soon(OUTPUT, &bytes, 0o600));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_the_lines_before_are_counted() {
        let mut tail = Tail::default();
        tail.push(b"a\nb\n");
        assert_eq!((tail.output().skipped_lines, tail.output().text.as_str()), (0, "a\nb\n"));
        tail.push(&[b'x'; OUTPUT_MAX_BYTES - 2]);
        let output = tail.output();
        assert_eq!((output.skipped_lines, &output.text[..4]), (1, "b\nxx"));
        assert_eq!(output.text.len(), OUTPUT_MAX_BYTES);
    }
}
