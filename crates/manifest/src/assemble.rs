//! Makes a manifest of the merged document.

use crate::draft::{Draft, Placed};
use crate::form::{known, read_object};
use crate::limits::{SERVICES_MAX, SPEC_MAX_BYTES};
use crate::model::{Manifest, Mode, Mount, Placement, Reservations, Runtime, Service, Spec};
use crate::names::{GroupName, ProfileName, VolumeName};
use crate::reader::{Field, Reader};
use crate::source::Input;
use crate::table::parts::{TOP_LEVEL_X_ORCHESTRATE, VOLUME};
use crate::table::{SERVICE, TOP_LEVEL};
use crate::values::Replicas;
use crate::yaml::{Node, Value};
use schema::names::{ServiceName, quoted};
use schema::time::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

/// How long a service may take to stop if the file does not say it.
const STOP_GRACE_PERIOD: Span = Span(Duration::from_secs(10));

/// Reads the merged document. `None` if it has a mistake, which the report names.
pub(crate) fn assemble(root: &Node, input: &Input, reader: &mut Reader<'_>) -> Option<Manifest> {
    let top = Field { path: String::new(), position: root.position, node: root };
    let (mut name, mut services, mut volumes) = (None, None, None);
    for (key, field) in known(reader, &TOP_LEVEL, &top) {
        match key.name {
            "name" => name = Some(field),
            "services" => services = Some(field),
            "volumes" => volumes = Some(field),
            "x-orchestrate" => _ = known(reader, &TOP_LEVEL_X_ORCHESTRATE, &field),
            _ => {}
        }
    }
    let name = read_name(name.as_ref(), &top, input, reader);
    let active = match &services {
        Some(services) => active_services(services, input, reader),
        None => {
            // A file that could not be read may have had services.
            if reader.report.is_clean() {
                reader.report.mistake(top.position, "services", "there are no services", "write `services`");
            }
            Vec::new()
        }
    };
    let mut drafts = Vec::new();
    for (text, field) in active {
        let service = service_name(text, name.as_ref(), &field, reader);
        let mut draft = Draft::default();
        read_object(reader, &mut draft, &SERVICE, &field);
        drafts.push((service, field, draft));
    }
    check_volumes(volumes.as_ref(), &drafts, reader);
    let mut finished = BTreeMap::new();
    for (service, field, draft) in drafts {
        let Some(found) = finish(draft, &field, reader) else { continue };
        // The canonical form of a short text is short, even if each byte is escaped.
        let may_be_long = reader.report.is_clean() && field.node.size().1 > SPEC_MAX_BYTES / 16;
        let is_long = may_be_long && found.spec.canonical().len() > SPEC_MAX_BYTES;
        if is_long {
            let what = format!("the service is longer than {} KiB", SPEC_MAX_BYTES / 1024);
            reader.mistake(&field, what, "use shorter variables and labels");
        }
        finished.extend(service.map(|service| (service, found)));
    }
    Some(Manifest { name: name?, services: finished })
}

fn read_name(
    field: Option<&Field<'_>>,
    top: &Field<'_>,
    input: &Input,
    reader: &mut Reader<'_>,
) -> Option<GroupName> {
    match (&input.name, field) {
        (Some(name), _) => match GroupName::new(name) {
            Ok(name) => Some(name),
            Err(error) => {
                reader.report.mistake(top.position, "name", error.what, error.right);
                None
            }
        },
        (None, Some(field)) => reader.parse(field, GroupName::new),
        (None, None) => {
            let right = "write `name:` with small letters and digits, or name the group on the command line";
            reader.report.mistake(top.position, "name", "the group has no name", right);
            None
        }
    }
}

/// Returns the services that the profiles switch on. The others are not looked at further: a file can have services
/// that only other programs deploy.
fn active_services<'a>(
    field: &Field<'a>,
    input: &Input,
    reader: &mut Reader<'_>,
) -> Vec<(&'a str, Field<'a>)> {
    let all = reader.entries(field);
    if all.len() > SERVICES_MAX {
        let what = format!("there are more than {SERVICES_MAX} services");
        reader.mistake(field, what, "deploy several groups");
        return Vec::new();
    }
    let is_empty = all.is_empty();
    let active: Vec<_> = all.into_iter().filter(|(_, service)| is_active(service, input, reader)).collect();
    if !reader.report.is_clean() {
        // A service that could not be read is not in the list.
    } else if is_empty {
        reader.mistake(field, "there are no services", "write at least one service");
    } else if active.is_empty() {
        reader.mistake(field, "no service is active", "name a profile, or a service without `profiles`");
    }
    active
}

fn is_active(service: &Field<'_>, input: &Input, reader: &mut Reader<'_>) -> bool {
    let Some(profiles) = service.node.get("profiles") else { return true };
    let profiles = service.child("profiles", profiles.position, &profiles.node);
    let items = reader.items(&profiles);
    let names: Vec<ProfileName> =
        items.iter().filter_map(|item| reader.parse(item, ProfileName::new)).collect();
    let matches = |name: &ProfileName| input.profiles.contains(name.as_str());
    items.is_empty() || input.profiles.contains("*") || names.iter().any(matches)
}

fn service_name(
    text: &str,
    group: Option<&GroupName>,
    field: &Field<'_>,
    reader: &mut Reader<'_>,
) -> Option<ServiceName> {
    // The catalog knows the service by the names of its group and itself, in one label of DNS.
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let name = ServiceName::new(text).ok().filter(|_| is_plain);
    let fits = match (&name, group) {
        (Some(name), Some(group)) => {
            let whole = ServiceName::new(Service::catalog_name(group, name));
            whole.is_ok_and(|whole| whole.is_label())
        }
        (_, None) | (None, _) => true,
    };
    match name {
        Some(name) if fits => Some(name),
        Some(_) => {
            reader.mistake(field, "the names of group and service are longer than 62 bytes", "shorten one");
            None
        }
        None => {
            let what = format!("{} is no name of a service", quoted(text));
            reader.mistake(
                field,
                what,
                "write letters, digits, `-` and `_`, and begin with a letter or a digit",
            );
            None
        }
    }
}

fn check_volumes(
    field: Option<&Field<'_>>,
    drafts: &[(Option<ServiceName>, Field<'_>, Draft)],
    reader: &mut Reader<'_>,
) {
    let mut defined = BTreeSet::new();
    let used: BTreeSet<&VolumeName> = drafts
        .iter()
        .flat_map(|(_, _, draft)| draft.volumes.values())
        .map(|mount| &mount.value.volume)
        .collect();
    for (text, entry) in field.map(|field| reader.entries(field)).unwrap_or_default() {
        _ = known(reader, &VOLUME, &entry);
        match VolumeName::new(text) {
            Ok(name) => {
                if !used.contains(&name) {
                    let what = format!("no active service uses the volume {name}");
                    reader.report.warning(entry.position, entry.path.as_str(), what, "remove it, or use it");
                }
                defined.insert(name);
            }
            Err(error) => reader.wrong_value(&entry, &error),
        }
    }
    for mount in drafts.iter().flat_map(|(_, _, draft)| draft.volumes.values()) {
        if !defined.contains(&mount.value.volume) {
            let what = format!("the volume {} is not defined", mount.value.volume);
            let right = format!("add `{}:` to `volumes` of the top level", mount.value.volume);
            reader.report.mistake(mount.position, mount.path.as_str(), what, right);
        }
    }
}

fn finish(draft: Draft, field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Service> {
    let mode = draft.mode.unwrap_or_default();
    let replicas = match (mode, &draft.replicas) {
        (Mode::Replicated, replicas) => Some(replicas.as_ref().map_or(Replicas::ONE, |found| found.value)),
        (Mode::Global, None) => None,
        (Mode::Global, Some(found)) => {
            let right = "remove `replicas`, or write `mode: replicated`";
            misplaced(reader, found, "a global service has no number of replicas", right);
            None
        }
    };
    let runtime = runtime(&draft, field, reader)?;
    let max_replicas_per_node = max_replicas_per_node(&draft, mode, &runtime, reader);
    let spec = Spec {
        environment: draft.environment,
        labels: draft.labels,
        mode,
        placement: Placement {
            constraints: draft.constraints,
            max_replicas_per_node,
            preferences: draft.preferences,
        },
        reservations: Reservations {
            cpus: draft.cpus.unwrap_or_default(),
            memory: draft.memory.unwrap_or_default(),
        },
        runtime,
        stop_grace_period: draft.stop_grace_period.unwrap_or(STOP_GRACE_PERIOD),
        volumes: draft
            .volumes
            .into_iter()
            .map(|(path, mount): (_, Placed<Mount>)| (path, mount.value))
            .collect(),
    };
    Some(Service { replicas, spec })
}

fn runtime(draft: &Draft, field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Runtime> {
    match (&draft.unit, &draft.program) {
        (Some(unit), None) => Some(Runtime::Unit(unit.value.clone())),
        (None, Some(program)) => Some(Runtime::Program(program.value.clone())),
        (Some(_), Some(program)) => {
            let right = "keep one of them; an overriding file removes the other with `!reset null`";
            misplaced(reader, program, "the service has a unit and a program", right);
            None
        }
        (None, None) => {
            // Another mistake says already what to write.
            let others = ["image", "build", "provider"];
            let is_reported = others.iter().any(|key| field.node.get(key).is_some());
            let is_mapping = matches!(field.node.value, Value::Map(_) | Value::Null);
            if is_mapping && !is_reported && !draft.has_wrong_runtime {
                let right = "write `x-orchestrate.unit` or `x-orchestrate.program`";
                reader.mistake(field, "nothing says what the service runs", right);
            }
            None
        }
    }
}

/// A unit that is no template runs once on a host, whether the file says it or not.
fn max_replicas_per_node(
    draft: &Draft,
    mode: Mode,
    runtime: &Runtime,
    reader: &mut Reader<'_>,
) -> Option<NonZeroU32> {
    let given = draft.max_replicas_per_node.as_ref();
    match mode {
        Mode::Global => {
            if let Some(found) = given {
                misplaced(reader, found, "a global service has one slot on each host", "remove the key");
            }
            None
        }
        Mode::Replicated if runtime.is_once_per_host() => {
            if let Some(found) = given.filter(|found| found.value != NonZeroU32::MIN) {
                let right = "write 1, or a template as in worker@.service";
                misplaced(reader, found, "a host can run this unit only once", right);
            }
            Some(NonZeroU32::MIN)
        }
        Mode::Replicated => given.map(|found| found.value),
    }
}

fn misplaced<T>(reader: &mut Reader<'_>, found: &Placed<T>, what: &str, right: &str) {
    reader.report.mistake(found.position, found.path.as_str(), what, right);
}
