//! Erases values from a segment.

use super::content::lines_of;
use super::entry::{ERASED, EVENT_VALUES};
use super::error::SegmentError;
use super::frame::{BEGIN, END, FRAME_MAX_BYTES, Kind, frame, read};
use super::line::{Erased, FrameLine, Hidden};
use super::segment::Segment;
use schema::keys::Prefix;
use serde_json::{Map, Value, json};
use std::io;

/// Returns a closed segment without the values of some keys, and with a mark of that in its header; `None` if it has none of
/// these values. The keys stay, with their revisions. Of events about these keys, what was there before and after is erased.
///
/// # Errors
/// Returns an error if the segment cannot be read as a whole, or is not closed.
pub fn erase(
    bytes: &[u8],
    is_wanted: impl Fn(&str) -> bool,
    mark: &Erased,
) -> Result<Option<Vec<u8>>, SegmentError> {
    if !Segment::read(bytes)?.closed {
        return Err(SegmentError::Unfinished);
    }
    let eraser = Eraser { is_wanted, events: Prefix::Events.to_string() };
    let (mut at, mut erased, mut written) = (BEGIN.len(), 0, BEGIN.to_vec());
    let (mut positions, mut index) = (Vec::new(), Vec::<FrameLine>::new());
    while let Some(found) = read(bytes, at)? {
        let damaged = |why: String| SegmentError::Damaged { at, why };
        let lines = found.lines()?;
        let mut lines: Vec<Value> = lines_of(&lines)
            .map(serde_json::from_slice)
            .collect::<Result<_, _>>()
            .map_err(|error| damaged(error.to_string()))?;
        match found.kind {
            Kind::Header => lines.iter_mut().try_for_each(|header| add_mark(header, mark)),
            Kind::Keys => {
                erased += lines.iter_mut().map(|line| eraser.key(line)).sum::<usize>();
                Ok(())
            }
            Kind::Changes => {
                let changes = lines.iter_mut().filter_map(|line| line.get_mut("changes")?.as_array_mut());
                erased += changes.flatten().map(|line| eraser.key(line)).sum::<usize>();
                Ok(())
            }
            Kind::Index => {
                let read = lines.drain(..).map(serde_json::from_value).collect::<Result<_, _>>();
                read.map(|read| index = read)
            }
        }
        .map_err(|error| damaged(error.to_string()))?;
        if found.kind == Kind::Index {
            break;
        }
        positions.push(written.len() as u64);
        written.extend(encoded(found.kind, &lines).map_err(|error| damaged(error.to_string()))?);
        at = found.end;
    }
    if erased == 0 {
        return Ok(None);
    }
    let position = written.len();
    let moved = index.iter().zip(&positions).map(|(line, at)| json!(FrameLine { at: *at, ..*line }));
    let index = encoded(Kind::Index, &moved.collect::<Vec<_>>());
    written.extend(index.map_err(|error| SegmentError::Damaged { at, why: error.to_string() })?);
    written.extend((position as u64).to_le_bytes());
    written.extend(END);
    Ok(Some(written))
}

fn encoded(kind: Kind, lines: &[Value]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    // What stands in the place of a short value is longer.
    if text.len() > FRAME_MAX_BYTES {
        return Err(io::Error::other("the frame would be too long without the values"));
    }
    frame(kind, &text)
}

fn add_mark(header: &mut Value, mark: &Erased) -> serde_json::Result<()> {
    let mark = serde_json::to_value(mark)?;
    match header.get_mut("erased").and_then(Value::as_array_mut) {
        Some(marks) => marks.push(mark),
        None => header["erased"] = json!([mark]),
    }
    Ok(())
}

/// Which values are erased.
struct Eraser<F> {
    is_wanted: F,
    events: String,
}

impl<F: Fn(&str) -> bool> Eraser<F> {
    /// Erases what a line says of a key, and returns how many values that were. Fields that are not known here stay.
    fn key(&self, line: &mut Value) -> usize {
        let Some(line) = line.as_object_mut() else { return 0 };
        let Some(key) = line.get("key").and_then(Value::as_str) else { return 0 };
        if (self.is_wanted)(key) {
            return erase_value(line);
        }
        if !key.starts_with(&self.events) {
            return 0;
        }
        let Some(event) = line.get("value").and_then(Value::as_str) else { return 0 };
        let Ok(Value::Object(mut event)) = serde_json::from_str(event) else { return 0 };
        if !event.get("what").and_then(Value::as_str).is_some_and(&self.is_wanted) {
            return 0;
        }
        let mut count = 0;
        for field in EVENT_VALUES {
            if let Some(value) = event.get_mut(field).filter(|value| !value.is_null() && *value != ERASED) {
                *value = ERASED.into();
                count += 1;
            }
        }
        line.insert("value".into(), Value::Object(event).to_string().into());
        count
    }
}

fn erase_value(line: &mut Map<String, Value>) -> usize {
    let was_there = ["value", "base64"].into_iter().filter(|field| line.remove(*field).is_some()).count();
    if was_there > 0 {
        line.insert("hidden".into(), json!(Hidden::erased()));
    }
    was_there
}
