//! Frames: the units in which the file is written. A frame is on disk as a whole or not at all.
//!
//! A frame consists of a marker, the length of its payload, its number in the file, a checksum, and
//! the payload. Each frame is synced before the next is written, so after a crash only the last one
//! can be torn. A whole frame after one that is not whole means that the file was damaged, not
//! torn. The checksum includes a random number of the file, so that no value that a client writes
//! can pass for a frame.

use std::io::{self, Read};

/// Longest payload, in bytes. A batch of requests is far smaller.
pub(crate) const PAYLOAD_MAX_BYTES: usize = 8 * 1024 * 1024;
pub(crate) const HEADER_BYTES: usize = 20;
const MARKER: u32 = 0x4f4c_4f53;

/// Appends a frame, that is, header and payload, to `out`.
pub(crate) fn write(nonce: u64, number: u64, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&MARKER.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&checksum(nonce, number, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn checksum(nonce: u64, number: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&nonce.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Result of reading at the position of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundFrame {
    /// Payload of a whole frame.
    Frame(Vec<u8>),
    /// Bytes that were read but are not a whole frame with the expected number.
    Other(Vec<u8>),
}

/// Reads the frame with this number.
pub(crate) fn read(nonce: u64, number: u64, file: &mut impl Read) -> io::Result<FoundFrame> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
    let Some((_, length)) = header(&bytes).filter(|(found, _)| *found == number) else {
        return Ok(FoundFrame::Other(bytes));
    };
    file.take(length as u64).read_to_end(&mut bytes)?;
    if whole_number(nonce, &bytes) == Some(number) {
        bytes.drain(..HEADER_BYTES);
        Ok(FoundFrame::Frame(bytes))
    } else {
        Ok(FoundFrame::Other(bytes))
    }
}

/// Returns the number of the frame and the length of its payload, if the bytes begin with a header.
fn header(bytes: &[u8]) -> Option<(u64, usize)> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let number = u64::from(word(8)) | u64::from(word(12)) << 32;
    let length = word(4) as usize;
    (word(0) == MARKER && length <= PAYLOAD_MAX_BYTES).then_some((number, length))
}

/// Returns the number of the frame, if these bytes begin with a whole one.
fn whole_number(nonce: u64, bytes: &[u8]) -> Option<u64> {
    let (number, length) = header(bytes)?;
    let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + length)?;
    (bytes[16..HEADER_BYTES] == checksum(nonce, number, payload).to_le_bytes()).then_some(number)
}

/// True if these bytes contain a whole frame with a higher number than this one.
pub(crate) fn holds_later(nonce: u64, number: u64, bytes: &[u8]) -> bool {
    let starts = bytes.windows(4).enumerate().filter(|(_, window)| *window == MARKER.to_le_bytes());
    starts.into_iter().any(|(at, _)| whole_number(nonce, &bytes[at..]).is_some_and(|found| found > number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(7, number, payload, &mut bytes);
        bytes
    }

    #[test]
    fn a_frame_reads_back_under_its_own_number_and_file_alone() {
        let bytes = frame(3, b"payload");
        assert_eq!(read(7, 3, &mut &bytes[..]).unwrap(), FoundFrame::Frame(b"payload".to_vec()));
        assert!(matches!(read(7, 4, &mut &bytes[..]).unwrap(), FoundFrame::Other(_)));
        assert!(matches!(read(8, 3, &mut &bytes[..]).unwrap(), FoundFrame::Other(_)));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let bytes = frame(1, b"some payload");
        for length in 1..bytes.len() {
            assert!(matches!(read(7, 1, &mut &bytes[..length]).unwrap(), FoundFrame::Other(_)), "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(7, 1, &mut &flipped[..]).unwrap(), FoundFrame::Other(_)), "bit {bit}");
        }
    }

    #[test]
    fn damage_is_told_from_a_torn_end() {
        let mut bytes = frame(1, b"first");
        bytes[HEADER_BYTES] ^= 1;
        assert!(!holds_later(7, 1, &bytes), "torn: nothing stands behind");
        bytes.extend(frame(3, b"third"));
        assert!(holds_later(7, 1, &bytes), "damaged: another was written after it");
    }
}
