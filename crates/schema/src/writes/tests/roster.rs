//! Who writes the roster entry of a host.

use super::*;

#[test]
fn an_agent_replaces_the_roster_entry_that_scripts_of_its_host_wrote() {
    let host = HostName::new("web1").expect("a name");
    let claim = r#"{"instance":"i","machine_id":"m","boot_id":"b","addresses":[]}"#;
    let claim = keys::Live::read(claim.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let check = |before: &RosterEntry, own: &RosterEntry, expected: &RosterEntry| {
        let mut store = Store::default();
        store.put(&Key::Host(host.clone()), codec::write(before).as_bytes(), 0);
        let write = ClaimWrite {
            host: &host,
            claim: &claim,
            roster: own,
            lease: 2,
            resumed: false,
            store_revision: 0,
        };
        assert!(store.apply(&write.transaction(&store.0)));
        let entry = store.0.get(&Key::Host(host.clone())).expect("an entry");
        assert_eq!(keys::Host::read(&entry.value).as_ref(), Ok(expected));
    };
    let of_script = RosterEntry::of_script(&host, EpochSeconds(5));
    let role = |name: &str| crate::names::Role::new(name).ok();
    let own = RosterEntry { role: role("db"), since: EpochSeconds(9), ..RosterEntry::default() };
    check(&of_script, &own, &RosterEntry { since: EpochSeconds(5), ..own.clone() });
    // Settings without a role leave the one that the name says.
    let roleless = RosterEntry { role: None, ..own.clone() };
    check(
        &of_script,
        &roleless,
        &RosterEntry { role: role("web"), since: EpochSeconds(5), ..roleless.clone() },
    );
    let of_operator = RosterEntry { from_script: false, ..of_script.clone() };
    check(&of_operator, &own, &of_operator);
    let gone = RosterEntry { decommissioned: Some(EpochSeconds(7)), ..of_script };
    check(&gone, &own, &gone);
}
