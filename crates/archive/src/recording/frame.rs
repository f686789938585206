//! Frames, the parts of a segment that are whole or not there.

use super::error::SegmentError;

/// What a segment begins with.
pub(super) const BEGIN: &[u8; 8] = b"ORCHREC\n";
/// What a closed segment ends with.
pub(super) const END: &[u8; 8] = b"ORCHEND\n";
/// Bytes before the payload of a frame.
const HEAD_BYTES: usize = 9;
/// Compression level. Higher ones take several times as long for a few per cent.
const LEVEL: i32 = 3;
/// Intended length of the lines of a frame, in bytes. One line can be longer.
pub(super) const FRAME_BYTES: usize = 1024 * 1024;
/// Longest lines of a frame that are read, in bytes. A store takes requests of 1.5 MiB, whose JSON is at most six
/// times as long.
pub(super) const FRAME_MAX_BYTES: usize = 16 * 1024 * 1024;

/// What the lines of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Header,
    Keys,
    Changes,
    Index,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::Header => b'H',
            Self::Keys => b'P',
            Self::Changes => b'C',
            Self::Index => b'I',
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Header, Self::Keys, Self::Changes, Self::Index].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Returns a frame with these lines.
///
/// # Errors
/// Returns an error if they cannot be compressed, which only a lack of memory causes.
pub(super) fn frame(kind: Kind, lines: &[u8]) -> std::io::Result<Vec<u8>> {
    let payload = zstd::bulk::compress(lines, LEVEL)?;
    let length = u32::try_from(payload.len()).map_err(std::io::Error::other)?.to_le_bytes();
    let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
    frame.push(kind.byte());
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&checksum(kind.byte(), length, &payload).to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

fn checksum(kind: u8, length: [u8; 4], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(&length);
    hasher.update(payload);
    hasher.finalize()
}

/// A frame that was read.
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    payload: &'a [u8],
    /// Position of the frame.
    pub(super) at: usize,
    /// Position after the frame.
    pub(super) end: usize,
}

impl Frame<'_> {
    pub(super) fn lines(&self) -> Result<Vec<u8>, SegmentError> {
        let damaged =
            |error| SegmentError::Damaged { at: self.at, why: format!("it cannot be decompressed: {error}") };
        zstd::bulk::decompress(self.payload, FRAME_MAX_BYTES).map_err(damaged)
    }
}

/// Reads the frame at a position. Returns `None` if the bytes end before the frame does.
///
/// # Errors
/// Returns an error for a whole frame that is damaged.
pub(super) fn read(bytes: &[u8], at: usize) -> Result<Option<Frame<'_>>, SegmentError> {
    let damaged = |why: &str| SegmentError::Damaged { at, why: why.to_owned() };
    let Some((head, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<HEAD_BYTES>()) else {
        return Ok(None);
    };
    let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
    let length = [l0, l1, l2, l3];
    let known = Kind::of(kind).ok_or_else(|| damaged("a frame of this kind does not exist"))?;
    let Some(payload) = rest.get(..u32::from_le_bytes(length) as usize) else { return Ok(None) };
    if checksum(kind, length, payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(damaged("its checksum is wrong"));
    }
    Ok(Some(Frame { kind: known, payload, at, end: at + HEAD_BYTES + payload.len() }))
}
