//! Keys of the top level.

use super::parts::{TOP_LEVEL_X_ORCHESTRATE, VOLUME};
use super::service::SERVICE;
use crate::form::{Key, Object, Read, Treatment, accepted, refused};

pub(crate) static TOP_LEVEL: Object = Object {
    path: "",
    keys: &[
        accepted("name", Read::Apart, "the name of the group: small letters and digits"),
        accepted("services", Read::Each(&SERVICE), "the services, at most 500"),
        accepted(
            "volumes",
            Read::Each(&VOLUME),
            "the named volumes that services use; the definitions are empty",
        ),
        accepted(
            "x-orchestrate",
            Read::Object(&TOP_LEVEL_X_ORCHESTRATE),
            "settings of the group; there is none yet",
        ),
        Key {
            name: "version",
            treatment: Treatment::NoMeaning("`version` has no meaning in the Compose Specification any more"),
        },
        refused("include", "files are merged, and not included", "give all files with -f, in their order"),
        refused("networks", "services use the network of their hosts", "remove the key"),
        refused(
            "configs",
            "files of a group are not distributed yet",
            "let root install the files on the hosts",
        ),
        refused(
            "secrets",
            "secrets of a group are not distributed yet",
            "let root install the files on the hosts",
        ),
        refused("models", "orchestrate runs no language models", "run the model as a service of its own"),
    ],
};
