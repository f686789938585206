//! Examples of verbs: a command line, and what it does.

/// A command line, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// Returns the examples of a verb.
pub(crate) fn of(verb: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == verb).map(|(_, examples)| *examples).unwrap_or_default()
}

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "trigger_update",
        &[
            ("orchestrate trigger_update v43", "make every host run v43"),
            (
                "orchestrate trigger_update v43 --require-settled --if-different",
                "the same from a job: only if the fleet is settled, and only once",
            ),
            (
                "orchestrate trigger_update v43 --canary 1 --budget 0 --max 25%",
                "one host of each role first, stop at the first failure, a quarter at a time",
            ),
        ],
    ),
    ("rollout start", &[("orchestrate rollout start v43", "the same as trigger_update v43")]),
    ("rollout pause", &[("orchestrate rollout pause --reason 'db is slow'", "no host starts an update")]),
    ("rollout resume", &[("orchestrate rollout resume", "hosts start again")]),
    (
        "rollout status",
        &[
            ("orchestrate rollout status --watch", "show the rollout until it has ended or is halted"),
            ("orchestrate rollout status --wait 30m", "wait for its end, for a job"),
        ],
    ),
    ("rollout history", &[("orchestrate rollout history", "who triggered what, and how it ended")]),
    ("rollout queue", &[("orchestrate rollout queue", "which hosts wait for a limit")]),
    ("rollout set", &[("orchestrate rollout set --max role/db=2", "two hosts of the role db at a time")]),
    (
        "rollout excuse",
        &[("orchestrate rollout excuse web-7 --reason 'disk is replaced'", "go on without this host")],
    ),
    (
        "rollout rollback",
        &[
            ("orchestrate rollout rollback", "back to the last version whose rollout ended"),
            ("orchestrate rollout rollback --to v42", "back to v42"),
        ],
    ),
    (
        "freeze",
        &[
            ("orchestrate freeze --hostname web-7 --reason 'disk is replaced'", "keep one host as it is"),
            (
                "orchestrate freeze --for 2h --reason 'release of the shop'",
                "keep the whole fleet for 2 hours",
            ),
        ],
    ),
    ("unfreeze", &[("orchestrate unfreeze --hostname web-7", "end the freeze of one host")]),
    ("freezes", &[("orchestrate freezes", "who froze what, and why")]),
    ("policy set", &[("orchestrate policy set policy.toml", "use this policy from the next version on")]),
    ("policy show", &[("orchestrate policy show", "print the policy of the store")]),
    ("policy check", &[("orchestrate policy check policy.toml", "find mistakes, without the store")]),
    ("claims", &[("orchestrate claims", "which hosts count against a limit, and since when")]),
    (
        "claims release",
        &[("orchestrate claims release web-7 --reason 'gone for good'", "let another host start")],
    ),
    (
        "plan",
        &[
            ("orchestrate plan v43", "when each stage opens and each host starts"),
            (
                "orchestrate plan v43 --policy new.toml --assume-fail web-1",
                "the same with another policy and a failure",
            ),
        ],
    ),
    ("current_version", &[("orchestrate current_version", "print the desired version")]),
    (
        "verify_hosts",
        &[
            ("orchestrate verify_hosts v43 web-1 web-2", "do both hosts run v43?"),
            ("orchestrate verify_hosts v43 --wait 20m < hosts.txt", "wait until all hosts of a file run it"),
        ],
    ),
    ("running_versions", &[("orchestrate running_versions", "which versions run in the fleet")]),
    ("hosts_at_version", &[("orchestrate hosts_at_version v42", "which hosts still run v42")]),
    (
        "status",
        &[
            ("orchestrate status", "one word for the fleet, and what is wrong"),
            ("orchestrate status --watch", "show it again whenever it changes"),
            ("orchestrate status -o json", "the same for a program"),
        ],
    ),
    ("unaccounted", &[("orchestrate unaccounted", "which hosts are late, lost or were never seen")]),
    (
        "why",
        &[
            ("orchestrate why web-7", "why this host is not done, and what it does next"),
            ("orchestrate why", "what keeps hosts waiting, and which"),
        ],
    ),
    (
        "events",
        &[
            ("orchestrate events --since 2h", "who did what in the last two hours"),
            ("orchestrate events web-7", "what was done to web-7"),
            ("orchestrate events --follow", "go on, and print what is done from now on"),
        ],
    ),
    (
        "logs",
        &[
            ("orchestrate logs web-7", "the last lines of the step that failed"),
            ("orchestrate logs web-7 --from file:///srv/bundles", "all that it printed, from a bundle"),
            ("orchestrate logs --this-host --follow", "on the host: what the step prints that runs"),
            ("orchestrate logs --this-host --step install --attempt 1", "on the host: an earlier run"),
            ("orchestrate logs --this-host --step install --whole", "on the host: all that the step printed"),
        ],
    ),
    (
        "bundle",
        &[(
            "orchestrate bundle web-7 --from file:///srv/bundles",
            "fetch what web-7 kept of its failed attempt",
        )],
    ),
    (
        "retry",
        &[("orchestrate retry web-7", "try again now"), ("orchestrate retry --suspect", "all suspect hosts")],
    ),
    (
        "hosts",
        &[
            ("orchestrate hosts", "all hosts: version, verdict and reason"),
            ("orchestrate hosts --role web --sort verdict", "one role, the worst first"),
        ],
    ),
    (
        "hosts list",
        &[("orchestrate hosts list --verdict failed --verdict suspect", "only hosts with a failure")],
    ),
    ("hosts add", &[("orchestrate hosts add web-9 --role web --label rack=r2", "expect a new host")]),
    ("hosts decommission", &[("orchestrate hosts decommission web-9", "take a host out for good")]),
    ("services list", &[("orchestrate services list", "all services with their instances")]),
    (
        "services show",
        &[("orchestrate services show web --checks", "where web runs, and which of its checks fail")],
    ),
    (
        "wait_for",
        &[("orchestrate wait_for mysql --count 2 --timeout 5m", "wait until mysql works on two hosts")],
    ),
    ("dns", &[("orchestrate dns web.service.consul SRV", "hosts and ports of web, as DNS gives them")]),
    (
        "maintenance",
        &[
            ("orchestrate maintenance on web-7 --reason 'new disk'", "take the services of a host out"),
            ("orchestrate maintenance off web-7", "take them in again"),
        ],
    ),
    (
        "drain",
        &[
            ("orchestrate drain web-7", "let the services of a host take nothing new"),
            ("orchestrate drain web-7 --off", "end draining"),
        ],
    ),
    ("drop-stale", &[("orchestrate drop-stale", "believe that the silent instances are gone")]),
    ("pending_update", &[("orchestrate pending_update", "is this host to run another version?")]),
    (
        "with-claim",
        &[(
            "orchestrate with-claim --wait 1h -- systemctl restart mysql",
            "restart when the limits allow it",
        )],
    ),
    (
        "local_version",
        &[
            ("orchestrate local_version", "print the installed version"),
            ("orchestrate local_version v43", "record it, from a script that installed it"),
        ],
    ),
    (
        "update_own_status",
        &[("orchestrate update_own_status validation 0", "report that the validation passed")],
    ),
    ("update_own_info", &[("orchestrate update_own_info", "list this host under its installed version")]),
    ("local_health", &[("orchestrate local_health -v", "name the failures of this host")]),
    (
        "ping",
        &[
            ("orchestrate ping", "does the store answer?"),
            ("orchestrate --endpoints https://etcd1:2379 --cacert ca.crt ping", "does this one answer?"),
        ],
    ),
    ("store show", &[("orchestrate store show", "lineage, members and alarms of the store")]),
    ("store accept", &[("orchestrate store accept --version v42", "go on after a restore, at v42")]),
    ("ui", &[("orchestrate ui", "print the address of a page that shows the fleet")]),
    (
        "bootstrap",
        &[
            ("orchestrate bootstrap --first | sh", "the first host of a fleet, with the embedded store"),
            ("orchestrate bootstrap --endpoints https://etcd1:2379 --role web | sh", "join a fleet"),
        ],
    ),
    ("values list", &[("orchestrate values list", "what templates and gates of hosts read")]),
    ("values get", &[("orchestrate values get motd", "print a value")]),
    (
        "values set",
        &[
            ("orchestrate values set schema-change go", "open a gate that waits for this value"),
            ("orchestrate values set motd - < motd.txt", "write the content of a file"),
            ("orchestrate values set motd hello --if-revision 812", "only if nobody changed it since"),
        ],
    ),
    ("values rm", &[("orchestrate values rm motd", "delete a value")]),
    (
        "enroll",
        &[
            ("orchestrate enroll web-7 --print-etcdctl --service web", "the user of an agent"),
            ("orchestrate enroll alice --print-etcdctl --as operator", "the user of a person"),
            (
                "orchestrate enroll web-7 --remove --print-etcdctl",
                "takes the rights of a host away that left",
            ),
        ],
    ),
    (
        "recording list",
        &[(
            "orchestrate recording list --recording /var/lib/orchestrate-observer/recording",
            "what is recorded, and how much space it takes",
        )],
    ),
    (
        "recording check",
        &[(
            "orchestrate recording check --recording /var/lib/orchestrate-observer/recording",
            "read everything, and say what is wrong or missing",
        )],
    ),
    (
        "recording prune",
        &[(
            "orchestrate recording prune --recording /srv/recording --older-than 90d --dry-run",
            "say which segments would be removed",
        )],
    ),
    (
        "recording erase",
        &[(
            "orchestrate recording erase /orchestrate/reports/web-7 --recording /srv/recording",
            "erase what web-7 reported",
        )],
    ),
    (
        "lint",
        &[("orchestrate lint /etc/orchestrate", "check the settings of this host before they are used")],
    ),
    (
        "completion",
        &[(
            "orchestrate completion bash > ~/.local/share/bash-completion/completions/orchestrate",
            "for one user",
        )],
    ),
    ("manual", &[("orchestrate manual ~/.local/share/man", "for one user; read them with man orchestrate")]),
    (
        "get_failures",
        &[
            ("orchestrate get_failures --hosts", "name the failures"),
            ("orchestrate get_failures --group", "print the causes, and how many hosts have each"),
        ],
    ),
    ("cache_services", &[("orchestrate cache_services", "write the file that Hiera reads")]),
    ("check_puppet", &[("orchestrate check_puppet || exit 0", "at the start of a cron script")]),
    ("enable_puppet", &[("orchestrate enable_puppet False role -n web", "hold the scripts of a role")]),
    (
        "rolling_upgrade upgrade",
        &[("orchestrate rolling_upgrade upgrade v43 --retry", "upgrade host after host until all are done")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help::document::groups;
    use std::ffi::OsString;

    /// Splits a command line as a shell does; what a shell itself reads is cut off.
    fn words(line: &str) -> Vec<OsString> {
        let mut line = line;
        for end in [" | ", " || ", " > ", " < "] {
            line = line.split(end).next().unwrap_or_default();
        }
        let quoted = line.split('\'').enumerate();
        let parts = quoted.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect::<Vec<_>>(),
            _ => vec![part],
        });
        parts.map(OsString::from).collect()
    }

    #[test]
    fn every_example_is_a_command_line_of_its_verb() {
        for (verb, examples) in EXAMPLES {
            assert!(!examples.is_empty(), "{verb}");
            for (line, what) in *examples {
                let cli = crate::cli::parse(words(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
                assert!(line.contains(&format!(" {verb}")), "{line} is not about {verb}");
                assert!(!what.is_empty() && !what.ends_with('.'), "{line}: {what}");
                drop(cli);
            }
        }
    }

    #[test]
    fn every_verb_that_people_use_has_an_example() {
        let groups = groups();
        let (old, own) = groups.split_last().unwrap();
        assert_eq!(old.heading, "Verbs of the original tool");
        for section in own.iter().flat_map(|group| &group.verbs) {
            assert!(!of(section.verb()).is_empty(), "{}", section.verb());
        }
    }

    #[test]
    fn examples_are_for_verbs_that_exist() {
        let groups = groups();
        let verbs: Vec<&str> = groups.iter().flat_map(|group| &group.verbs).map(|v| v.verb()).collect();
        for (verb, _) in EXAMPLES {
            assert!(verbs.contains(verb), "{verb}");
        }
    }
}
