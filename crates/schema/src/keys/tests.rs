//! The table of keys as a whole: each row can be read, is found, and is granted as it says.

use super::*;
use crate::grants::{Access, Grant};
use crate::limit::CLAIM_NUMBERS;
use crate::names::{HostName, ServiceName, StatusType};
use crate::order::InstructionOrder;
use crate::reads::Keys;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn every_documented_key_is_single_or_in_one_range() {
    for DocumentedKey { path, .. } in documented() {
        let single = Key::singles().iter().filter(|key| key.to_string() == path).count();
        let ranges = Prefix::WHOLE.iter().filter(|prefix| path.starts_with(&prefix.to_string())).count();
        assert_eq!(single + ranges, 1, "{path}: operators would have no grant for it");
    }
}

/// What stands in a path for each placeholder.
#[derive(Debug, Clone)]
struct Arguments {
    name: String,
    host: String,
    number: u32,
    /// Which scope and which kind of limit.
    choice: usize,
}

fn arguments() -> impl Strategy<Value = Arguments> {
    let name = "[A-Za-z0-9][A-Za-z0-9._+~:-]{0,20}";
    let host = "[a-z0-9]{1,8}(-[a-z0-9]{1,4})?(\\.[a-z0-9]{1,5}){0,2}";
    (name, host, 0..CLAIM_NUMBERS, 0usize..5).prop_map(|(name, host, number, choice)| Arguments {
        name,
        host,
        number,
        choice,
    })
}

impl Arguments {
    /// Fills the path of a documented key.
    fn fill(&self, path: &str) -> String {
        let Self { name, host, number, choice } = self;
        let order = InstructionOrder { epoch: *choice as u64, revision: (*number).into() };
        let by = ["fleet", "role", "group", "labels.a", "labels.b.c"][*choice];
        let freezes = [
            "fleet".into(),
            "pause".into(),
            format!("role/{name}"),
            format!("group/{name}"),
            format!("host/{host}"),
        ];
        let configs = ["global".into(), format!("role/{name}"), format!("host/{host}")];
        let scope = if path.contains("/freezes/") { &freezes[*choice] } else { &configs[*choice % 3] };
        path.replace("<host>", host)
            .replace("<state>", StatusState::ALL[*choice % 3].as_str())
            .replace("<id>", &order.to_string())
            .replace("<by>", by)
            .replace("<place>", &format!("{number:08x}"))
            .replace("<number>", &format!("{number:05}"))
            .replace("<stage>", &number.to_string())
            .replace("<scope>", scope)
            .replace("<ms>-<random>", &format!("{number}-a"))
            .replace("<version>", name)
            .replace("<type>", name)
            .replace("<service>", name)
            .replace("<name>", name)
            .replace("<token>", name)
            .replace("<value>", name)
    }
}

proptest! {
    #[test]
    fn a_key_reads_back_as_written(arguments in arguments()) {
        for DocumentedKey { path, row } in documented() {
            let text = arguments.fill(&path);
            let key = Key::parse(&text).unwrap();
            prop_assert_eq!(key.to_string(), text);
            prop_assert_eq!(key.row(), row);
            let host = key.host().map(|host| host.as_str());
            prop_assert_eq!(host, if row.owner == "host" { Some(arguments.host.as_str()) } else { None });
        }
    }

    #[test]
    fn whatever_is_accepted_is_spelled_as_it_was(text in "/?(orchestrate/|status/|running_version/)?.{0,60}") {
        if let Ok(key) = Key::parse(&text) {
            prop_assert_eq!(key.to_string(), text);
        }
    }
}

fn example() -> Arguments {
    Arguments { name: "a".into(), host: "h".into(), number: 1, choice: 1 }
}

/// Decommissioning a host and `why` find the keys of a host in this way.
#[test]
fn every_key_of_a_host_is_found_by_its_name() {
    let host = HostName::new("h").unwrap();
    let named: Vec<String> = Key::of_host(&host).iter().map(Key::to_string).collect();
    let ranges: Vec<String> = Prefix::before_host().iter().map(Prefix::to_string).collect();
    for DocumentedKey { path, row } in documented() {
        let key = example().fill(&path);
        let belongs = Key::parse(&key).is_ok_and(|parsed| parsed.host() == Some(&host));
        // What a host did in a rollout outlives the host.
        let is_of_rollout = ["/failed/", "/excused/", "/progress/"].iter().any(|kind| path.contains(kind));
        assert_eq!(belongs, path.ends_with("<host>") && !is_of_rollout, "{path}");
        assert_eq!(belongs, row.owner == "host", "{path}");
        let is_found = named.contains(&key) || ranges.iter().any(|range| key.starts_with(range));
        assert_eq!(belongs, is_found, "{path}");
    }
}

/// Returns what grants permit for a key; `None` for nothing.
fn permitted(grants: &[Grant], path: &str) -> Option<Access> {
    let covers = |keys: &Keys| match keys {
        Keys::One(key) => key.to_string() == path,
        Keys::Below(range) => path.starts_with(&range.to_string()),
    };
    let found: Vec<Access> =
        grants.iter().filter(|grant| covers(&grant.keys)).map(|grant| grant.access).collect();
    if found.contains(&Access::ReadWrite) { Some(Access::ReadWrite) } else { found.first().copied() }
}

#[test]
fn agents_are_granted_what_the_table_says() {
    let service = ServiceName::new("a").unwrap();
    let own = Arguments { name: "a".into(), ..example() };
    let of_agent = |host: &str| {
        let own = crate::grants::agent(&HostName::new(host).unwrap(), &BTreeSet::from([service.clone()]));
        [crate::grants::every_agent(), own].concat()
    };
    let access = |read: bool, write: bool| match (read, write) {
        (_, true) => Some(Access::ReadWrite),
        (true, false) => Some(Access::Read),
        (false, false) => None,
    };
    for DocumentedKey { path, row } in documented() {
        let key = own.fill(&path.replace("<type>", StatusType::apply().as_str()));
        let (read, write) = (row.agents_read, row.agents_write);
        let is_for_own = permitted(&of_agent("h"), &key);
        assert_eq!(is_for_own, access(read != Agents::No, write != Agents::No), "{path}");
        let is_for_others = permitted(&of_agent("other"), &key);
        assert_eq!(is_for_others, access(read == Agents::All, write == Agents::All), "{path}");
    }
}

#[test]
fn garbage_in_the_store_is_refused() {
    for bad in [
        "",
        "/",
        "current_version",
        "/current_version/",
        "/running_version/",
        "/running_version/1",
        "/running_version/1/",
        "/running_version//h",
        "/running_version/../h",
        "/running_version/1/a/b",
        "/status/puppet/failed/",
        "/status/puppet/broken/h",
        "/status/puppet/h",
        "/orchestrate/live/a b",
        "/orchestrate/live/",
        "/orchestrate/hosts/a/b",
        "/orchestrate/unknown/h",
        "/available_services/web",
        "/available_services//h",
        "/available_services/../h",
        "/orchestrate/health/web/a/b",
        "/orchestrate/maintenance/",
        "/orchestrate/release_view/",
        "/orchestrate/events/17",
        "/orchestrate/events/-a",
        "/orchestrate/events/99999999999999999999-a",
        "/running_version/1/h\n",
        "/config_state/",
        "/config_state/global",
        "/config_state/global/",
        "/config_state/global/a/b",
        "/config_state/role/web",
        "/config_state/role/a b/c",
        "/config_state/host/a_b/c",
        "/config_state/rack/a/b",
        "/config_state/enable_puppet",
        "/config_state/enable_puppet/",
        "/config_state/enable_puppet/global/",
        "/config_state/enable_puppet/role/",
        "/config_state/enable_puppet/host/a/b",
        "/config_version/enable_puppet/global",
        "/orchestrate/freezes/fleet",
        "/orchestrate/freezes/fleet/",
        "/orchestrate/freezes/fleet/a/b",
        "/orchestrate/freezes/role/a",
        "/orchestrate/freezes/role/a/b/c",
        "/orchestrate/freezes/rack/a/b",
        "/orchestrate/freezes/host/a b/c",
        "/orchestrate/rollouts/1-2/record",
        "/orchestrate/rollouts/0000000001-0000000000000000002/other",
        "/orchestrate/claims/role/web",
        "/orchestrate/claims/role/web/1",
        "/orchestrate/claims/role/web/99999",
        "/orchestrate/claims/role/web/+0001",
        "/orchestrate/claims/rack/a/00001",
        "/orchestrate/claims/labels./a/00001",
        "/orchestrate/claims/role/web/00001/b",
        "/orchestrate/queue/0000000001-0000000000000000002/limit/role/web/0000000A/h",
        "/orchestrate/queue/0000000001-0000000000000000002/stage/role/web/0000000a/h",
        "/orchestrate/queue/0000000001-0000000000000000002/limit/role/web/0000000a/h/i",
    ] {
        Key::parse(bad).unwrap_err();
    }
}
