//! Keys of `x-orchestrate` in a service: what Compose has no word for.

use crate::fields::basic;
use crate::form::{Object, Read, accepted, refused};

const LATER: &str = "this version does not act on it";
const REMOVE: &str = "remove the key";

pub(crate) static X_ORCHESTRATE: Object = Object {
    path: "services.*.x-orchestrate",
    keys: &[
        accepted(
            "unit",
            Read::Service(basic::unit),
            "the unit, or the template of units, that root installed",
        ),
        accepted("program", Read::Service(basic::program), "the program that root defined in `workloads.d`"),
        refused("requires", LATER, REMOVE),
        refused("reschedule", LATER, REMOVE),
        refused("max_unavailable", LATER, REMOVE),
        refused("canary", LATER, REMOVE),
        refused("monitor", LATER, REMOVE),
        refused("fence", LATER, REMOVE),
        refused("apart", LATER, "write `deploy.placement.max_replicas_per_node` where that is enough"),
        refused("with", LATER, "write the same `deploy.placement.constraints` in both services"),
        refused("task", LATER, REMOVE),
        refused("keep_failed", LATER, REMOVE),
        refused("routes", LATER, REMOVE),
        refused("export", LATER, REMOVE),
        refused("port", LATER, REMOVE),
    ],
};
