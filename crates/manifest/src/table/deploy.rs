//! Keys of `deploy`.

use crate::fields::{basic, placement};
use crate::form::{Object, Read, accepted, refused};

pub(crate) static DEPLOY: Object = Object {
    path: "services.*.deploy",
    keys: &[
        accepted(
            "mode",
            Read::Service(basic::mode),
            "`replicated` (default), or `global`: one slot on each host",
        ),
        accepted("replicas", Read::Service(basic::replicas), "the number of slots, 0 to 10000; default: 1"),
        accepted("placement", Read::Object(&PLACEMENT), "which hosts may run the service"),
        accepted("resources", Read::Object(&RESOURCES), "what a host keeps free for a slot"),
        refused("labels", "a service has one set of labels", "write `labels` of the service"),
        refused(
            "endpoint_mode",
            "services are found by name, and there is no virtual address",
            "remove the key",
        ),
        refused("restart_policy", "a service that ended is always started again", "remove the key"),
        refused("update_config", "this version does not act on it", "remove the key"),
        refused("rollback_config", "this version does not act on it", "remove the key"),
    ],
};

pub(crate) static PLACEMENT: Object = Object {
    path: "services.*.deploy.placement",
    keys: &[
        accepted(
            "constraints",
            Read::Service(placement::constraints),
            "a list of `SUBJECT == VALUE`, `SUBJECT != VALUE`, or `SUBJECT ~ VALUE` for hosts that come first; \
             a subject is `node.labels.NAME`, `node.hostname`, `node.role` or `node.group`",
        ),
        accepted(
            "preferences",
            Read::Service(placement::preferences),
            "over what the slots are spread, the most important property first",
        ),
        accepted(
            "max_replicas_per_node",
            Read::Service(placement::max_replicas_per_node),
            "most slots on one host; default: no limit, and 1 for a unit that is no template",
        ),
    ],
};

pub(crate) static RESOURCES: Object = Object {
    path: "services.*.deploy.resources",
    keys: &[
        accepted("reservations", Read::Object(&RESERVATIONS), "what a host keeps free for each slot"),
        refused(
            "limits",
            "root decides what a unit or a program may use at most",
            "write `MemoryMax=` and `CPUQuota=` in the unit",
        ),
    ],
};

pub(crate) static RESERVATIONS: Object = Object {
    path: "services.*.deploy.resources.reservations",
    keys: &[
        accepted("cpus", Read::Service(basic::cpus), "processors, as in `0.25`; default: 0"),
        accepted("memory", Read::Service(basic::memory), "memory, as in `64m`; default: 0"),
        refused("generic_resources", "hosts do not say which devices they have", LABEL),
        refused("devices", "hosts do not say which devices they have", LABEL),
    ],
};

const LABEL: &str = "label the hosts that have the device, and write a constraint";
