//! Small mappings, which the code that reads them goes through itself.

use crate::form::{Object, Read, accepted, refused};

pub(crate) static VOLUME: Object = Object {
    path: "volumes.*",
    keys: &[
        refused("name", "a volume has the name under which the services use it", "rename the volume itself"),
        refused("driver", NO_DRIVER, "leave the definition empty"),
        refused("driver_opts", NO_DRIVER, "leave the definition empty"),
        refused("external", "every volume is kept when its group is removed", "leave the definition empty"),
        refused("labels", "nothing reads labels of volumes", "write `labels` of the service"),
    ],
};

const NO_DRIVER: &str = "a volume is a directory of the host that holds the slot";

pub(crate) static EXTENDS: Object = Object {
    path: "services.*.extends",
    keys: &[
        accepted("service", Read::Apart, "the service to start from"),
        accepted("file", Read::Apart, "the file of that service, relative to this one; default: this file"),
    ],
};

pub(crate) static MOUNT: Object = Object {
    path: "services.*.volumes.*",
    keys: &[
        accepted("type", Read::Apart, "has to be `volume`"),
        accepted("source", Read::Apart, "the name of the volume"),
        accepted("target", Read::Apart, "the path in the service"),
        accepted("read_only", Read::Apart, "the service cannot write to it; default: false"),
        refused("consistency", "it is a setting of desktop machines", "remove the key"),
        refused("bind", "only named volumes are mounted", "write `type: volume`"),
        refused("volume", "a volume has no options", "remove the key"),
        refused("tmpfs", "only named volumes are mounted", "write `type: volume`"),
        refused("image", "only named volumes are mounted", "write `type: volume`"),
    ],
};

pub(crate) static PREFERENCE: Object = Object {
    path: "services.*.deploy.placement.preferences.*",
    keys: &[accepted(
        "spread",
        Read::Apart,
        "`node.labels.NAME`, `node.role` or `node.group`: slots get different values of it first",
    )],
};

pub(crate) static TOP_LEVEL_X_ORCHESTRATE: Object = Object { path: "x-orchestrate", keys: &[] };
