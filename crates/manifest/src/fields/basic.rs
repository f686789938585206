//! What runs, how often, and with which environment.

use crate::draft::{Draft, Placed};
use crate::model::Mode;
use crate::names::{LabelKey, ProgramName, UnitName, VariableName};
use crate::reader::{Field, Reader};
use crate::values::{Bytes, MilliCpus, Replicas, parse_duration};
use crate::yaml::Value;
use schema::names::quoted;

pub(crate) fn unit(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    draft.unit = reader.parse(field, UnitName::new).map(|value| placed(field, value));
    draft.has_wrong_runtime |= draft.unit.is_none();
}

pub(crate) fn program(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    draft.program = reader.parse(field, ProgramName::new).map(|value| placed(field, value));
    draft.has_wrong_runtime |= draft.program.is_none();
}

/// Reads the variables. A variable without a value has that of the command.
pub(crate) fn environment(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    for (name, entry) in reader.entries(field) {
        let value = match &entry.node.value {
            Value::Null => reader.variables.get(name).map(String::as_str),
            Value::Text(_) | Value::List(_) | Value::Map(_) => match reader.text(&entry) {
                Some(value) => Some(value),
                None => continue,
            },
        };
        let Some(value) = value else {
            let what = format!("the variable {name} has no value, and the service does not get it");
            reader.report.warning(
                entry.position,
                entry.path.as_str(),
                what,
                "write a value or set the variable",
            );
            continue;
        };
        if value.contains('\0') {
            reader.mistake(&entry, "the value contains a NUL character", "remove it");
            continue;
        }
        match VariableName::new(name) {
            Ok(name) => _ = draft.environment.insert(name, value.to_owned()),
            Err(error) => reader.wrong_value(&entry, &error),
        }
    }
}

pub(crate) fn labels(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    for (name, entry) in reader.entries(field) {
        let value = match &entry.node.value {
            Value::Null => "",
            Value::Text(_) | Value::List(_) | Value::Map(_) => match reader.text(&entry) {
                Some(value) => value,
                None => continue,
            },
        };
        match LabelKey::new(name) {
            Ok(name) => _ = draft.labels.insert(name, value.to_owned()),
            Err(error) => reader.wrong_value(&entry, &error),
        }
    }
}

pub(crate) fn mode(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    let Some(text) = reader.text(field) else { return };
    match text {
        "replicated" => draft.mode = Some(Mode::Replicated),
        "global" => draft.mode = Some(Mode::Global),
        other => {
            let what = format!("{} is no mode that can be deployed", quoted(other));
            reader.mistake(field, what, "write replicated or global");
        }
    }
}

pub(crate) fn replicas(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    draft.replicas = reader.parse(field, Replicas::parse).map(|value| placed(field, value));
}

pub(crate) fn cpus(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    draft.cpus = reader.parse(field, MilliCpus::parse);
}

pub(crate) fn memory(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    draft.memory = reader.parse(field, Bytes::parse);
}

pub(crate) fn stop_grace_period(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    draft.stop_grace_period = reader.parse(field, parse_duration);
}

pub(super) fn placed<T>(field: &Field<'_>, value: T) -> Placed<T> {
    Placed { value, path: field.path.clone(), position: field.position }
}
