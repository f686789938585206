//! Which hosts may run a service.

use super::basic::placed;
use crate::draft::Draft;
use crate::form::known;
use crate::reader::{Field, Reader};
use crate::table::parts::PREFERENCE;
use crate::values::{Constraint, Subject};
use schema::names::quoted;
use std::num::NonZeroU32;

pub(crate) fn constraints(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    for item in reader.items(field) {
        let Some(constraint) = reader.parse(&item, str::parse::<Constraint>) else { continue };
        let is_of_swarm = ["manager", "worker"].contains(&constraint.value.as_str());
        if constraint.subject == Subject::Role && is_of_swarm {
            let what = format!("{} is a role of Docker Swarm", quoted(&constraint.value));
            let right = "write a role of the roster, unless a role there has this name";
            reader.report.warning(item.position, item.path.as_str(), what, right);
        }
        draft.constraints.insert(constraint);
    }
}

pub(crate) fn preferences(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    for item in reader.items(field) {
        for (_, spread) in known(reader, &PREFERENCE, &item) {
            let Some(subject) = reader.parse(&spread, str::parse::<Subject>) else { continue };
            match subject {
                Subject::HostName => {
                    let what = "slots are spread over hosts anyway";
                    reader.mistake(&spread, what, "write node.labels.NAME, node.role or node.group");
                }
                // The same preference in two files is one.
                Subject::Role | Subject::Group | Subject::Label(_) => {
                    if !draft.preferences.contains(&subject) {
                        draft.preferences.push(subject);
                    }
                }
            }
        }
    }
}

pub(crate) fn max_replicas_per_node(reader: &mut Reader<'_>, draft: &mut Draft, field: &Field<'_>) {
    let parse = |text: &str| {
        text.parse::<NonZeroU32>()
            .map_err(|_| format!("{} is no number of replicas; write a whole number from 1", quoted(text)))
    };
    draft.max_replicas_per_node = reader.parse(field, parse).map(|value| placed(field, value));
}
