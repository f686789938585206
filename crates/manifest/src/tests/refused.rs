//! Mistakes: each names the file, the line, the key, and what would be right.

use super::{check, service};
use crate::{Input, read};

/// Checks the mistakes of the lines of a service, which begin in line 5 and column 5. Each is given without the name of
/// the file.
fn check_service(lines: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|line| format!("compose.yaml:{line}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(&Input::of(service(lines)), &Err(&expected));
}

#[test]
fn a_wrong_key_or_value_is_named_with_its_line() {
    for (lines, expected) in [
        (
            "image: nginx",
            "5:5: services.web.image: `image` is refused: this version runs no images; \
             write `x-orchestrate.unit` or `x-orchestrate.program`",
        ),
        (
            "enviroment: {}",
            "5:5: services.web.enviroment: the key \"enviroment\" is not known here; did you mean `environment`?",
        ),
        (
            "deploy:\n  replica: 2",
            "6:7: services.web.deploy.replica: the key \"replica\" is not known here; did you mean `replicas`?",
        ),
        (
            "deploy: {replicas: many}",
            "5:14: services.web.deploy.replicas: \"many\" is no number of replicas; write a whole number from 0 to 10000",
        ),
        ("deploy: 3", "5:5: services.web.deploy: here stands a single value; write a mapping"),
        (
            "deploy: {replicas: [1]}",
            "5:14: services.web.deploy.replicas: here stands a list; write a single value",
        ),
        (
            "deploy: {mode: global, replicas: 2}",
            "5:28: services.web.deploy.replicas: a global service has no number of replicas; \
             remove `replicas`, or write `mode: replicated`",
        ),
        (
            "deploy: {mode: replicated-job}",
            "5:14: services.web.deploy.mode: \"replicated-job\" is no mode that can be deployed; write replicated or global",
        ),
        (
            "deploy: {placement: {constraints: [disktype=ssd]}}",
            "5:40: services.web.deploy.placement.constraints[0]: \"disktype=ssd\" has no operator; \
             write ==, != or ~, as in node.labels.zone == attic",
        ),
        (
            "deploy: {placement: {preferences: [{spread: node.hostname}]}}",
            "5:41: services.web.deploy.placement.preferences[0].spread: slots are spread over hosts anyway; \
             write node.labels.NAME, node.role or node.group",
        ),
        (
            "deploy: {placement: {max_replicas_per_node: 0}}",
            "5:26: services.web.deploy.placement.max_replicas_per_node: \"0\" is no number of replicas; \
             write a whole number from 1",
        ),
        (
            "deploy: {resources: {limits: {memory: 1g}}}",
            "5:26: services.web.deploy.resources.limits: `limits` is refused: root decides what a unit or a program may \
             use at most; write `MemoryMax=` and `CPUQuota=` in the unit",
        ),
        (
            "deploy: {resources: {reservations: {memory: lots}}}",
            "5:41: services.web.deploy.resources.reservations.memory: \"lots\" is no amount of memory; \
             write a number with the unit b, k, m or g, as in 64m",
        ),
        (
            "stop_grace_period: 10",
            "5:5: services.web.stop_grace_period: \"10\" is no duration; \
             write numbers with the units h, m, s, ms or us, as in 10s, 1m30s or 500ms",
        ),
        (
            "environment: [1A=b]",
            "5:19: services.web.environment.1A: \"1A\" is no name of a variable; \
             write letters, digits and `_`, and begin with a letter or `_`",
        ),
        (
            "environment: [A=1, A=2]",
            "5:24: services.web.environment[1]: \"A\" stands twice in the list; write it once",
        ),
        ("environment: text", "5:5: services.web.environment: here stands a single value; write a mapping"),
        (
            "environment: {A: [1]}",
            "5:19: services.web.environment.A: here stands a list; write a single value",
        ),
        (
            "labels: {a b: 1}",
            "5:14: services.web.labels.a b: \"a b\" is no name of a label; write 1 to 128 printable characters without blanks and without `=`",
        ),
        (
            "volumes: [/srv:/srv]",
            "5:15: services.web.volumes./srv: \"/srv:/srv\" mounts a directory of the host; \
             write a named volume, as in data:/var/lib/shop",
        ),
        (
            "volumes: [/srv]",
            "5:15: services.web.volumes[0]: here stands a single value; write a named volume with its path, as in data:/var/lib/shop",
        ),
        ("volumes: {a: b}", "5:5: services.web.volumes: here stands a mapping; write a list"),
        (
            "volumes: [data:/srv]",
            "5:15: services.web.volumes./srv: the volume data is not defined; add `data:` to `volumes` of the top level",
        ),
        (
            "volumes: [\"data:/srv:z\"]",
            "5:15: services.web.volumes./srv: \"z\" is no way to mount a volume; write ro, rw or nothing behind the path",
        ),
        (
            "volumes: [{type: bind, source: data, target: /srv}]",
            "5:15: services.web.volumes./srv: the type \"bind\" is refused; write `type: volume`",
        ),
        (
            "environment: {A: \"${B:?say it}\"}",
            "5:22: services.web.environment.A: the variable B has no value: say it; set B in the environment of the command",
        ),
        (
            "deploy: {replicas: \"${N:?}\"}",
            "5:24: services.web.deploy.replicas: the variable N has no value; set N in the environment of the command",
        ),
        (
            "environment: {A: \"${B\"}",
            "5:22: services.web.environment.A: a variable has no closing brace; write ${NAME}, and $$ for a dollar sign",
        ),
        ("labels: {a: 1, a: 2}", "5:20: the key \"a\" stands twice, first in line 5; write each key once"),
        (
            "labels: !secret {a: 1}",
            "5:21: the tag \"!secret\" is not known; write `!reset`, `!override` or no tag",
        ),
        (
            "labels: {<<: 1}",
            "5:18: <<: a merge key needs a mapping; write an alias of a mapping, as in `<<: *defaults`, or a list of them",
        ),
        ("labels: {[a]: 1}", "5:14: a key is a list; write a name"),
    ] {
        check_service(lines, &[expected]);
    }
}

#[test]
fn what_runs_has_to_be_said_once() {
    for (orchestrate, expected) in [
        (
            "{}",
            "3:3: services.web: nothing says what the service runs; write `x-orchestrate.unit` or `x-orchestrate.program`",
        ),
        (
            "{unit: a.service, program: a}",
            "4:38: services.web.x-orchestrate.program: the service has a unit and a program; \
             keep one of them; an overriding file removes the other with `!reset null`",
        ),
        (
            "{unit: a.timer}",
            "4:21: services.web.x-orchestrate.unit: \"a.timer\" is no name of a unit; \
             write a service unit that root installed, as in shop-web.service or worker@.service",
        ),
        (
            "{program: a, canary: 1}",
            "4:33: services.web.x-orchestrate.canary: `canary` is refused: this version does not act on it; remove the key",
        ),
    ] {
        let text = format!("name: shop\nservices:\n  web:\n    x-orchestrate: {orchestrate}\n");
        check(&Input::of(text), &Err(&[&format!("compose.yaml:{expected}")]));
    }
}

#[test]
fn a_wrong_file_is_named() {
    for (text, expected) in [
        ("", "1:1: the file holds nothing; write a mapping with `services`"),
        ("- a\n", "1:1: the file holds a list; write a mapping with `services`"),
        ("name: shop\n", "1:1: services: there are no services; write `services`"),
        ("name: shop\nservices: {}\n", "2:1: services: there are no services; write at least one service"),
        (
            "name: shop\nservices: {web: {profiles: [x]}}\n",
            "2:1: services: no service is active; name a profile, or a service without `profiles`",
        ),
        (
            "services: {web: {x-orchestrate: {program: a}}}\n",
            "1:1: name: the group has no name; write `name:` with small letters and digits, \
             or name the group on the command line",
        ),
        (
            "name: shop-eu\nservices: {web: {x-orchestrate: {program: a}}}\n",
            "1:1: name: \"shop-eu\" is no name of a group; write 1 to 32 small letters and digits, for example `shopeu`",
        ),
        (
            "name: shop\nservices: {we.b: {x-orchestrate: {program: a}}}\n",
            "2:12: services.we.b: \"we.b\" is no name of a service; \
             write letters, digits, `-` and `_`, and begin with a letter or a digit",
        ),
        (
            "name: shop\nservices: {web: 1}\n",
            "2:12: services.web: here stands a single value; write a mapping",
        ),
        (
            "name: shop\nservices: {web: {x-orchestrate: {program: a}}}\nnetworks: {a: }\n",
            "3:1: networks: `networks` is refused: services use the network of their hosts; remove the key",
        ),
        (
            "name: shop\nservices: {web: {x-orchestrate: {program: a}}}\nvolumes: {a: {driver: nfs}}\n",
            "3:15: volumes.a.driver: `driver` is refused: a volume is a directory of the host that holds the slot; \
             leave the definition empty",
        ),
        (
            "a: b\n---\na: b\n",
            "2:1: a second document begins here; write one document in a file, and give several files",
        ),
    ] {
        check(&Input::of(text), &Err(&[&format!("compose.yaml:{expected}")]));
    }
    let not_yaml = read(&Input::of("name: shop\nservices: [\n")).unwrap_err();
    assert_eq!(not_yaml.len(), 1);
    assert!(not_yaml[0].what.starts_with("this is no YAML: "), "{not_yaml:?}");
}

#[test]
fn all_mistakes_are_found_at_once() {
    check(
        &Input::of(
            "name: shop-eu\nservices:\n  a:\n    image: x\n    deploy: {replicas: -1}\n  b:\n    x-orchestrate: {unit: b}\n",
        ),
        &Err(&[
            "compose.yaml:1:1: name: \"shop-eu\" is no name of a group; \
             write 1 to 32 small letters and digits, for example `shopeu`",
            "compose.yaml:4:5: services.a.image: `image` is refused: this version runs no images; \
             write `x-orchestrate.unit` or `x-orchestrate.program`",
            "compose.yaml:5:14: services.a.deploy.replicas: \"-1\" is no number of replicas; \
             write a whole number from 0 to 10000",
            "compose.yaml:7:21: services.b.x-orchestrate.unit: \"b\" is no name of a unit; \
             write a service unit that root installed, as in shop-web.service or worker@.service",
        ]),
    );
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let text = format!("version: \"3.8\"\n{}volumes: {{unused: }}\n", service("labels: {a: $UNSET}"));
    let warnings = read(&Input::of(text)).expect("right").warnings;
    assert_eq!(
        super::lines(&warnings),
        [
            "compose.yaml:1:1: version: `version` has no meaning in the Compose Specification any more; remove the line",
            "compose.yaml:6:17: services.web.labels.a: the variable UNSET is not set, and counts as empty; \
             set UNSET, or write ${UNSET:-default}",
            "compose.yaml:7:11: volumes.unused: no active service uses the volume unused; remove it, or use it",
        ]
    );
}
