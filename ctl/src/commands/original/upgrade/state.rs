//! What the store says about the hosts of a rolling upgrade.
use schema::host_config::{ConfigKind, ConfigScope, enables, role_of};
use schema::keys::{self, Key, Prefix};
use schema::names::{ConfigName, HostName, Role, Version};
use schema::snapshot::KeySnapshot;
use std::collections::BTreeMap;

/// Returns what has to be read, at one revision, for a view.
pub(crate) fn upgrade_reads() -> ([Key; 2], [Prefix; 4]) {
    let keys = [Key::CurrentVersion, Key::Store];
    (keys, [Prefix::RunningVersions, Prefix::Hosts, Prefix::ReportingAll, Prefix::ConfigState])
}

/// How far a host is in the rolling upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UpgradeState {
    /// The host is listed under the desired version.
    Upgraded,
    /// The host may run, and is not listed under the desired version.
    Upgrading,
    /// The host may not run.
    Pending,
}

/// What the store says about one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HostView {
    /// Its role by its name.
    pub(super) role: Option<Role>,
    /// The versions under which it is listed, with the revisions at which each listing was created.
    pub(super) listed: BTreeMap<Version, i64>,
    /// What its own key says; `None` if there is none.
    pub(super) own: Option<bool>,
    /// True if an operator holds it by a key of the host, its role or the whole fleet.
    pub(super) is_paused: bool,
}

/// What the store says about the hosts of a rolling upgrade, at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpgradeView {
    pub(super) desired: Option<Version>,
    /// The hosts that are known: on the roster, listed, reporting by scripts, or with a key of their own.
    pub(super) hosts: BTreeMap<HostName, HostView>,
    /// What the keys of roles say.
    pub(super) roles: BTreeMap<Role, bool>,
    /// What the global key says.
    pub(super) global: Option<bool>,
    /// Revision at which the global key was written last, with which every step does.
    pub(super) last_step: i64,
}

impl UpgradeView {
    /// Reads the view from the keys of [`upgrade_reads`]. Other keys are passed over.
    ///
    /// # Errors
    /// Returns why the desired version cannot be read.
    pub(crate) fn read(found: &KeySnapshot) -> Result<Self, String> {
        let desired = found.read(keys::CurrentVersion);
        let desired = desired.transpose().map_err(|error| format!("{}: {error}", Key::CurrentVersion))?;
        let last_step = found.revision_of(&Key::EnablePuppet(ConfigScope::Global));
        let mut view =
            Self { desired, hosts: BTreeMap::new(), roles: BTreeMap::new(), global: None, last_step };
        let mut pauses = BTreeMap::new();
        let mut gone = Vec::new();
        for (key, entry) in &found.entries {
            match Key::parse(key) {
                Ok(Key::RunningVersion(version, host)) => {
                    view.host(host).listed.insert(version, entry.create_revision);
                }
                Ok(Key::Reporting(_, host)) => drop(view.host(host)),
                Ok(Key::Host(host)) => {
                    let roster = keys::Host::read(&entry.value);
                    if roster.is_ok_and(|roster| roster.decommissioned.is_some()) {
                        gone.push(host);
                    } else {
                        view.host(host);
                    }
                }
                Ok(Key::EnablePuppet(ConfigScope::Host(host))) => {
                    view.host(host).own = Some(enables(&entry.value));
                }
                Ok(Key::EnablePuppet(ConfigScope::Role(role))) => {
                    view.roles.insert(role, enables(&entry.value));
                }
                Ok(Key::EnablePuppet(ConfigScope::Global)) => view.global = Some(enables(&entry.value)),
                Ok(Key::HostConfig(ConfigKind::State, scope, name))
                    if name == ConfigName::enable_puppet() =>
                {
                    pauses.insert(scope, !enables(&entry.value));
                }
                _ => {}
            }
        }
        gone.iter().for_each(|host| drop(view.hosts.remove(host)));
        for (host, state) in &mut view.hosts {
            let says = ConfigScope::of_host(host).into_iter().filter_map(|scope| pauses.get(&scope));
            state.is_paused = says.last().copied().unwrap_or(false);
        }
        Ok(view)
    }

    fn host(&mut self, host: HostName) -> &mut HostView {
        let role = role_of(&host);
        self.hosts.entry(host).or_insert_with(|| HostView { role, ..HostView::default() })
    }

    /// True if the global key holds all hosts that no narrower key lets run.
    pub(crate) fn holds_all(&self) -> bool {
        self.global == Some(false)
    }

    /// Returns the desired version.
    pub(crate) fn desired(&self) -> Option<&Version> {
        self.desired.as_ref()
    }

    /// True if the host is listed under the desired version.
    pub(super) fn is_done(&self, host: &HostView) -> bool {
        self.desired.as_ref().is_some_and(|version| host.listed.contains_key(version))
    }

    /// Returns what the key of a host's role says.
    pub(super) fn of_role(&self, host: &HostView) -> Option<bool> {
        host.role.as_ref().and_then(|role| self.roles.get(role)).copied()
    }

    /// True if the keys of the rolling upgrade let the host run.
    pub(super) fn may_run(&self, host: &HostView) -> bool {
        host.own.or(self.of_role(host)).or(self.global).unwrap_or(true)
    }

    pub(super) fn state(&self, host: &HostView) -> UpgradeState {
        match (self.is_done(host), self.may_run(host)) {
            (true, _) => UpgradeState::Upgraded,
            (false, true) => UpgradeState::Upgrading,
            (false, false) => UpgradeState::Pending,
        }
    }

    /// True if an operator holds a host that may not run: by a pause, or by a key of the rolling upgrade that only
    /// operators write.
    pub(super) fn is_held(&self, host: &HostView) -> bool {
        host.is_paused || host.own.is_some() || self.of_role(host).is_some()
    }

    /// Returns the hosts in a state, by name.
    pub(crate) fn hosts_in(&self, state: UpgradeState) -> impl Iterator<Item = &HostName> {
        self.hosts.iter().filter(move |(_, host)| self.state(host) == state).map(|(name, _)| name)
    }

    /// Returns the hosts that are not done and that an operator holds, by name.
    pub(crate) fn held_hosts(&self) -> impl Iterator<Item = &HostName> {
        let is_held = |host: &HostView| match self.state(host) {
            UpgradeState::Upgraded => false,
            UpgradeState::Upgrading => host.is_paused,
            UpgradeState::Pending => self.is_held(host),
        };
        self.hosts.iter().filter(move |(_, host)| is_held(host)).map(|(name, _)| name)
    }

    /// True if no host is left to upgrade.
    pub(crate) fn is_over(&self) -> bool {
        self.hosts_in(UpgradeState::Upgraded).count() == self.hosts.len()
    }
}
