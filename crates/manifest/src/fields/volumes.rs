//! Named volumes, which pin a service to its hosts.

use crate::draft::{Draft, Placed};
use crate::form::known;
use crate::model::Mount;
use crate::names::{MountPath, VolumeName};
use crate::reader::{Field, Reader};
use crate::table::parts::MOUNT;
use crate::yaml::{Node, Value};
use schema::names::quoted;

const NAMED_ONLY: &str = "write a named volume, as in data:/var/lib/shop";

/// Reads the volumes, which [`target`] has made a mapping by their targets.
pub(crate) fn volumes(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    for (target, entry) in reader.entries(field) {
        let mount = match &entry.node.value {
            Value::Text(text) => short(reader, &entry, text),
            Value::Map(_) => long(reader, &entry),
            Value::Null | Value::List(_) => {
                reader.mistake(&entry, format!("here stands {}", entry.node.kind()), NAMED_ONLY);
                None
            }
        };
        let path = match MountPath::new(target) {
            Ok(path) => path,
            Err(error) => {
                reader.wrong_value(&entry, &error);
                continue;
            }
        };
        if let Some(value) = mount {
            let placed = Placed { value, path: entry.path.clone(), position: entry.position };
            draft.volumes.insert(path, placed);
        }
    }
}

/// Returns the path of a volume in the service, by which volumes of several files are merged.
pub(crate) fn target(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => text.split(':').nth(1).map(str::to_owned),
        Value::Map(_) => node.get("target")?.node.as_text().map(str::to_owned),
        Value::Null | Value::List(_) => None,
    }
}

/// Reads `volume:/path` or `volume:/path:ro`.
fn short(reader: &mut Reader<'_>, field: &Field<'_>, text: &str) -> Option<Mount> {
    let mut parts = text.split(':');
    let (source, _, mode) = (parts.next()?, parts.next()?, parts.next());
    if source.starts_with(['/', '.', '~']) {
        let what = format!("{} mounts a directory of the host", quoted(text));
        reader.mistake(field, what, NAMED_ONLY);
        return None;
    }
    let read_only = match mode {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(other) => {
            let what = format!("{} is no way to mount a volume", quoted(other));
            reader.mistake(field, what, "write ro, rw or nothing behind the path");
            return None;
        }
    };
    if parts.next().is_some() {
        reader.mistake(field, format!("{} has too many parts", quoted(text)), NAMED_ONLY);
        return None;
    }
    match VolumeName::new(source) {
        Ok(volume) => Some(Mount { read_only, volume }),
        Err(error) => {
            reader.wrong_value(field, &error);
            None
        }
    }
}

fn long(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Mount> {
    let (mut kind, mut volume, mut read_only) = (None, None, false);
    let mut is_right = true;
    for (key, entry) in known(reader, &MOUNT, field) {
        match key.name {
            "type" => kind = reader.text(&entry),
            "source" => {
                volume = reader.parse(&entry, VolumeName::new);
                is_right &= volume.is_some();
            }
            "read_only" => read_only = reader.flag(&entry).unwrap_or_default(),
            _ => {}
        }
    }
    match kind {
        Some("volume") => {}
        Some(other) => {
            reader.mistake(field, format!("the type {} is refused", quoted(other)), "write `type: volume`");
            return None;
        }
        None => {
            reader.mistake(field, "the type is missing", "write `type: volume`");
            return None;
        }
    }
    if volume.is_none() && is_right {
        reader.mistake(field, "the volume has no name", "write `source:` with a name");
    }
    Some(Mount { read_only, volume: volume? })
}
