//! Keys of a service.

use super::deploy::DEPLOY;
use super::x_orchestrate::X_ORCHESTRATE;
use crate::fields::{basic, volumes};
use crate::form::{Merge, Object, Read, accepted, merged, refused};

const NO_IMAGE: &str = "it is a setting of images, and this version runs none";
const ROOT: &str = "root of the host decides how a unit or a program runs";
const LIMITS: &str = "root of the host decides what a unit or a program may use at most";
const HOST_NETWORK: &str = "services use the network of their hosts";
const SERVICES_BY_NAME: &str = "services find each other by name";
const REMOVE: &str = "remove the key";
const UNIT: &str = "set it in the unit or in the definition of the program";
const RUNTIME: &str = "write `x-orchestrate.unit` or `x-orchestrate.program`";
const COMMAND: &str =
    "let root define the command, and write `x-orchestrate.unit` or `x-orchestrate.program`";
const RESERVE_CPUS: &str = "write `deploy.resources.reservations.cpus` to keep processors free";
const RESERVE_MEMORY: &str = "write `deploy.resources.reservations.memory` to keep memory free";

pub(crate) static SERVICE: Object = Object {
    path: "services.*",
    keys: &[
        accepted(
            "x-orchestrate",
            Read::Object(&X_ORCHESTRATE),
            "what runs, and what Compose has no word for",
        ),
        merged(
            "environment",
            Merge::Pairs,
            Read::Service(basic::environment),
            "variables of the service; the unit or program takes those that root allows",
        ),
        merged("labels", Merge::Pairs, Read::Service(basic::labels), "labels, which other programs may read"),
        accepted("deploy", Read::Object(&DEPLOY), "how often the service runs, and where"),
        accepted(
            "stop_grace_period",
            Read::Service(basic::stop_grace_period),
            "how long the service may take to stop; default: 10s",
        ),
        merged(
            "volumes",
            Merge::Targets,
            Read::Service(volumes::volumes),
            "named volumes; a service with one stays on its hosts",
        ),
        accepted("profiles", Read::Apart, "the service is deployed only with one of these profiles"),
        accepted("extends", Read::Apart, "the service starts from the keys of another one"),
        refused(
            "image",
            "this version runs no images",
            "write `x-orchestrate.unit` or `x-orchestrate.program`",
        ),
        refused("build", "images are not built at deployment", "build the image before, in CI"),
        refused("pull_policy", NO_IMAGE, REMOVE),
        refused("pull_refresh_after", NO_IMAGE, REMOVE),
        refused("platform", NO_IMAGE, REMOVE),
        refused("provider", "nothing but units and programs is run", RUNTIME),
        refused("command", ROOT, COMMAND),
        refused("entrypoint", ROOT, COMMAND),
        refused("working_dir", ROOT, UNIT),
        refused("user", ROOT, UNIT),
        refused("group_add", ROOT, UNIT),
        refused(
            "env_file",
            "files of the operator are not read",
            "write `environment`, with variables of the command",
        ),
        refused("label_file", "files of the operator are not read", "write `labels`"),
        refused("annotations", NO_IMAGE, "write `labels`"),
        refused("attach", "a deployment follows no output", "read the logs on the host"),
        refused("scale", "`deploy.replicas` has this meaning", "write `deploy.replicas`"),
        refused("restart", "a service that ended is always started again", REMOVE),
        refused(
            "depends_on",
            "the order of services is not acted on yet",
            "let the service wait for what it needs",
        ),
        refused("links", SERVICES_BY_NAME, REMOVE),
        refused("external_links", SERVICES_BY_NAME, REMOVE),
        refused(
            "healthcheck",
            "health checks of a manifest are not acted on yet",
            "install a service file with checks on the hosts",
        ),
        refused(
            "ports",
            "ports of a manifest are not published yet",
            "install a service file with the port on the hosts",
        ),
        refused("expose", "ports of a manifest are not published yet", REMOVE),
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
        refused("credential_spec", "it is a setting of Windows", REMOVE),
        refused("isolation", "it is a setting of Windows", REMOVE),
        refused("networks", HOST_NETWORK, REMOVE),
        refused("network_mode", HOST_NETWORK, REMOVE),
        refused("mac_address", HOST_NETWORK, REMOVE),
        refused("hostname", HOST_NETWORK, REMOVE),
        refused("domainname", HOST_NETWORK, REMOVE),
        refused("dns", HOST_NETWORK, REMOVE),
        refused("dns_opt", HOST_NETWORK, REMOVE),
        refused("dns_search", HOST_NETWORK, REMOVE),
        refused("extra_hosts", HOST_NETWORK, REMOVE),
        refused("container_name", "instances are named by their group, service and slot", REMOVE),
        refused("models", "orchestrate runs no language models", "run the model as a service of its own"),
        refused(
            "gpus",
            "hosts do not say which devices they have",
            "label the hosts that have the device, and write a constraint",
        ),
        refused("cpu_count", LIMITS, UNIT),
        refused("cpu_percent", LIMITS, UNIT),
        refused("cpu_period", LIMITS, UNIT),
        refused("cpu_quota", LIMITS, UNIT),
        refused("cpu_rt_period", LIMITS, UNIT),
        refused("cpu_rt_runtime", LIMITS, UNIT),
        refused("cpu_shares", LIMITS, UNIT),
        refused("cpuset", LIMITS, UNIT),
        refused("blkio_config", LIMITS, UNIT),
        refused("mem_swappiness", LIMITS, UNIT),
        refused("memswap_limit", LIMITS, UNIT),
        refused("oom_kill_disable", LIMITS, UNIT),
        refused("oom_score_adj", LIMITS, UNIT),
        refused("pids_limit", LIMITS, UNIT),
        refused("shm_size", LIMITS, UNIT),
        refused("ulimits", LIMITS, UNIT),
        refused("storage_opt", LIMITS, UNIT),
        refused("cpus", LIMITS, RESERVE_CPUS),
        refused("mem_limit", LIMITS, RESERVE_MEMORY),
        refused(
            "mem_reservation",
            "`deploy.resources.reservations.memory` has this meaning",
            "write `deploy.resources.reservations.memory`",
        ),
        refused("cap_add", ROOT, UNIT),
        refused("cap_drop", ROOT, UNIT),
        refused("cgroup", ROOT, UNIT),
        refused("cgroup_parent", ROOT, UNIT),
        refused("device_cgroup_rules", ROOT, UNIT),
        refused("devices", ROOT, UNIT),
        refused("ipc", ROOT, UNIT),
        refused("pid", ROOT, UNIT),
        refused("privileged", ROOT, UNIT),
        refused("read_only", ROOT, UNIT),
        refused("runtime", ROOT, UNIT),
        refused("security_opt", ROOT, UNIT),
        refused("sysctls", ROOT, UNIT),
        refused("userns_mode", ROOT, UNIT),
        refused("uts", ROOT, UNIT),
        refused("use_api_socket", ROOT, UNIT),
        refused(
            "tmpfs",
            "only named volumes are mounted",
            "write `RuntimeDirectory=` or `TemporaryFileSystem=` in the unit",
        ),
        refused(
            "volumes_from",
            "volumes of other services are not shared",
            "write `volumes` in both services",
        ),
        refused("logging", "the journal of the host keeps the output", REMOVE),
        refused("init", NO_IMAGE, REMOVE),
        refused("stdin_open", "a service has no terminal", REMOVE),
        refused("tty", "a service has no terminal", REMOVE),
        refused("stop_signal", ROOT, "write `KillSignal=` in the unit"),
        refused("post_start", ROOT, "write `ExecStartPost=` in the unit"),
        refused("pre_stop", ROOT, "write `ExecStop=` in the unit"),
        refused("develop", "it is a setting of the machine of a developer", REMOVE),
    ],
};
