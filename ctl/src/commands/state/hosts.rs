//! The roster: `hosts list`, `hosts add`, `hosts decommission`.

use crate::commands::answers;
use crate::commands::context::{Store, host_of, now};
use crate::commands::fleet;
use crate::commands::selection::{Selection, parse_label, refuse_unknown};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use ::fleet::views::{HostOrder, HostsView};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use etcd_session::StoreError;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Role};
use schema::records::RosterEntry;
use schema::snapshot::KeySnapshot;
use schema::verdict::VerdictKind;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// List the hosts of the fleet, add one, or take one out
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Hosts {
    #[command(flatten)]
    list: List,
}

impl Verb for Hosts {
    const SPEC: Spec = Spec {
        name: "hosts",
        group: Group::Hosts,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[],
        answer: Answer::OfOther,
        examples: &[
            ("orchestrate hosts", "all hosts: version, verdict and reason"),
            ("orchestrate hosts --role web --sort verdict", "one role, the worst first"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        self.list.run(store, output).await
    }
}

/// List the hosts
#[derive(Debug, Default, Args)]
pub(crate) struct List {
    /// Include decommissioned hosts
    #[arg(long)]
    all: bool,
    /// Show groups, labels and whole reasons
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    selection: Selection,
    /// Only hosts with this verdict; may be given several times
    #[arg(long = "verdict", value_name = "VERDICT", value_parser = verdict_parser())]
    verdicts: Vec<VerdictKind>,
    /// Sort by this column: the worst verdict first, the oldest report first
    #[arg(long, value_name = "COLUMN", value_parser = order_parser(), default_value = "host")]
    sort: HostOrder,
}

/// Parses a verdict.
fn verdict_parser() -> impl TypedValueParser<Value = VerdictKind> {
    let words = PossibleValuesParser::new(VerdictKind::ALL.map(VerdictKind::as_str));
    words.try_map(|word| VerdictKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or("no verdict"))
}

/// Parses the name of a column.
fn order_parser() -> impl TypedValueParser<Value = HostOrder> {
    let words = PossibleValuesParser::new(HostOrder::ALL.map(HostOrder::as_str));
    words.try_map(|word| HostOrder::ALL.into_iter().find(|order| order.as_str() == word).ok_or("no column"))
}

/// Options for the roster entry of a host.
#[derive(Debug, Args)]
pub(crate) struct RosterOptions {
    /// Role of the host
    #[arg(long)]
    role: Option<String>,
    /// Group of the host
    #[arg(long)]
    group: Option<String>,
    /// A free label; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
}

/// Changes to a roster entry. Values that are not given stay as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RosterPatch {
    pub(crate) role: Option<Role>,
    pub(crate) group: Option<Role>,
    pub(crate) labels: BTreeMap<String, String>,
}

impl RosterPatch {
    /// Parses role, group and labels. Invalid ones are wrong usage.
    pub(crate) fn parse(options: &RosterOptions) -> Result<Self, Failure> {
        let name = |text: &Option<String>| text.as_ref().map(Role::new).transpose().map_err(Failure::usage);
        let mut patch =
            Self { role: name(&options.role)?, group: name(&options.group)?, labels: BTreeMap::new() };
        for label in &options.labels {
            let (name, value) = parse_label(label)?;
            patch.labels.insert(name, value);
        }
        Ok(patch)
    }

    /// Returns the changed entry. A decommissioned host is a member again from now on; what its entry said about it
    /// stays.
    fn apply_to(self, before: Option<RosterEntry>, since: schema::time::EpochSeconds) -> RosterEntry {
        let mut entry = before.unwrap_or(RosterEntry { since, ..RosterEntry::default() });
        if entry.decommissioned.take().is_some() {
            entry.since = since;
        }
        entry.from_script = false;
        entry.role = self.role.or(entry.role);
        entry.group = self.group.or(entry.group);
        entry.labels.extend(self.labels);
        entry
    }
}

/// Returns the roster entry of a host. An unreadable entry is a failure, so that it is not
/// overwritten.
fn entry_of(snapshot: &KeySnapshot, host: &HostName) -> Result<Option<RosterEntry>, Failure> {
    snapshot
        .read(keys::Host(host.clone()))
        .transpose()
        .map_err(|e| Failure::cannot_tell(format!("the roster entry of {host}: {e}")))
}

impl Verb for List {
    const SPEC: Spec = Spec {
        name: "hosts list",
        group: Group::Hosts,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::Refused],
        answer: Answer::Json(answers::of::<HostsView>),
        examples: &[(
            "orchestrate hosts list --verdict failed --verdict suspect",
            "only hosts with a failure",
        )],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let filter = self.selection.filter(self.verdicts)?;
        let (mut fleet, revision) = fleet::read(store, None, store.deadline).await?;
        fleet::print_warnings(&fleet);
        refuse_unknown(&filter, &fleet)?;
        fleet::read_wait_causes(&mut fleet, revision, store).await?;
        let mut view = HostsView::new(&fleet, self.all, revision);
        let all = view.hosts.len();
        view.keep(&filter);
        view.sort(self.sort);
        let width = output::width();
        output.answer(&view, |output| output.raw(view.text(self.wide, width).as_str()));
        if view.hosts.len() < all {
            output::note(&format!("{} of {all} hosts", view.hosts.len()));
        }
        Ok(Exit::Yes)
    }
}

/// Add a host, or change its roster entry
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Name of the host, for example web-9
    #[arg(add = completion::hosts())]
    host: String,
    #[command(flatten)]
    roster: RosterOptions,
}

impl Verb for Add {
    const SPEC: Spec = Spec {
        name: "hosts add",
        group: Group::Hosts,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<ChangedHost<'_>>),
        examples: &[("orchestrate hosts add web-9 --role web --label rack=r2", "expect a new host")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = &host_of(&self.host)?;
        let patch = RosterPatch::parse(&self.roster)?;
        store.prepare_act();
        let snapshot = store.session.read_keys(&[Key::Host(host.clone())], store.deadline).await?;
        let before = entry_of(&snapshot, host)?;
        let entry = patch.apply_to(before.clone(), now());
        let unchanged =
            if before.as_ref() == Some(&entry) { snapshot.get(&Key::Host(host.clone())) } else { None };
        let revision = match unchanged {
            Some(unchanged) => unchanged.mod_revision,
            None => {
                let act = store.act("hosts add", None).await?;
                store.commit(&operator::add_host(host, &entry, &snapshot, &act)).await?
            }
        };
        let answer = ChangedHost { host, revision, changed: unchanged.is_none() };
        output.sorted_answer(&answer, |output| output.line(&entry_line(host, &entry)));
        Ok(Exit::Yes)
    }
}

/// What `hosts add` and `hosts decommission` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedHost<'a> {
    host: &'a HostName,
    revision: i64,
    changed: bool,
}

/// Returns the roster entry of a host in one line.
fn entry_line(host: &HostName, entry: &RosterEntry) -> String {
    let named = [("role", &entry.role), ("group", &entry.group)];
    let named = named.into_iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?)));
    let labels = entry.labels.iter().map(|(name, value)| format!("label {name}={value}"));
    let parts: Vec<String> = named.chain(labels).collect();
    format!("{host}: {}", if parts.is_empty() { "no role, group or label".into() } else { parts.join(", ") })
}

/// Reads all keys of a host. In some of them a version, type or service comes before the host: these are found
/// by listing whole ranges without values.
async fn read_all_keys(host: &HostName, store: &Store<'_>) -> Result<KeySnapshot, StoreError> {
    let Store { session, deadline, .. } = store;
    let mut keys = vec![Key::CurrentVersion, Key::Store];
    keys.extend(Key::of_host(host));
    let mut at = None;
    for prefix in Prefix::before_host() {
        let list = session.read_key_list(&prefix, at, *deadline).await?;
        at = Some(list.revision);
        let of_host = list.suffixes().filter(|suffix| suffix.rsplit('/').next() == Some(host.as_str()));
        keys.extend(of_host.filter_map(|suffix| Key::parse(&format!("{prefix}{suffix}")).ok()));
    }
    session.read_all(&keys, &[], at, *deadline).await
}

/// Returns the host that a text means. If an older agent left keys under exactly this spelling, with capitals,
/// they are meant, because nothing else can take them away.
async fn spelled(text: &str, store: &Store<'_>) -> Result<HostName, Failure> {
    let host = host_of(text)?;
    let Some(former) = HostName::new(text).ok().filter(HostName::has_capitals) else { return Ok(host) };
    let found = read_all_keys(&former, store).await?;
    let is_of_host = |key: &&String| Key::parse(key).is_ok_and(|key| key.host() == Some(&former));
    let is_out = matches!(entry_of(&found, &former), Ok(Some(entry)) if entry.decommissioned.is_some());
    let left = found.entries.keys().filter(is_of_host).count();
    Ok(if left == usize::from(is_out) { host } else { former })
}

/// Says that a host which leaves the fleet can still write, if the store knows who asks: it then knows the host too.
fn note_rights(host: &HostName, store: &Store<'_>) {
    let session = &store.settings.session;
    if session.user.is_some() || session.tls.cert.is_some() {
        output::note(&format!(
            "the user of {host} keeps its rights in the store until they are taken away: `orchestrate enroll {host} --remove --print-etcdctl` prints how"
        ));
    }
}

/// Take a host out of the fleet, and delete everything that it wrote
#[derive(Debug, Args)]
pub(crate) struct Decommission {
    /// Host that leaves the fleet
    #[arg(add = completion::hosts())]
    host: String,
    /// Decommission the host even if its agent is alive
    #[arg(long)]
    force: bool,
}

impl Verb for Decommission {
    const SPEC: Spec = Spec {
        name: "hosts decommission",
        group: Group::Hosts,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<ChangedHost<'_>>),
        examples: &[("orchestrate hosts decommission web-9", "take a host out for good")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = &spelled(&self.host, store).await?;
        store.prepare_act();
        let snapshot = read_all_keys(host, store).await?;
        let is_of_host = |key: &&String| Key::parse(key).is_ok_and(|key| key.host() == Some(host));
        let known = snapshot.entries.keys().filter(is_of_host).count();
        if known == 0 {
            return Err(Failure::no(format!("host {host} is not known")));
        }
        if let Some(live) = snapshot.get(&Key::Live(host.clone()))
            && !self.force
        {
            // Not every user may ask for the time of a lease.
            let left = store.session.lease_seconds_left(live.lease, store.deadline).await.ok();
            let left = left
                .filter(|seconds| *seconds > 0)
                .map(|seconds| format!("; if it was stopped, the host stays live for {seconds} s more"));
            return Err(Failure::refused(format!(
                "an agent runs on {host}; stop it first, or use --force{}",
                left.unwrap_or_default()
            )));
        }
        // A roster entry that cannot be read is replaced, because the host leaves the fleet anyway.
        let before = entry_of(&snapshot, host).unwrap_or_default().unwrap_or_default();
        note_rights(host, store);
        if known == 1
            && before.decommissioned.is_some()
            && let Some(entry) = snapshot.get(&Key::Host(host.clone()))
        {
            let answer = ChangedHost { host, revision: entry.mod_revision, changed: false };
            output.sorted_answer(&answer, |_| {});
            return Ok(Exit::Yes);
        }
        let tombstone =
            RosterEntry { decommissioned: Some(before.decommissioned.unwrap_or_else(now)), ..before };
        let has_brakes = crate::commands::store::identity::has_brakes(&snapshot);
        let act = store.act("hosts decommission", None).await?;
        let mut revision = 0;
        for transaction in operator::decommission(host, &tombstone, &snapshot, &act) {
            revision = store.commit(&transaction).await?;
        }
        if has_brakes {
            crate::commands::rollout::claims::release_all(host, "hosts decommission", store).await?;
        }
        output.sorted_answer(&ChangedHost { host, revision, changed: true }, |_| {});
        Ok(Exit::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::time::EpochSeconds;

    #[test]
    fn what_is_not_said_stays() {
        let patch = |role: Option<&str>, labels: &[&str]| {
            let labels = labels.iter().map(|l| (*l).to_owned()).collect();
            RosterPatch::parse(&RosterOptions { role: role.map(str::to_owned), group: None, labels }).unwrap()
        };
        let first = patch(Some("web"), &["rack=1", "zone=a"]).apply_to(None, EpochSeconds(5));
        assert_eq!(first.since, EpochSeconds(5));
        let second = patch(None, &["rack=2"]).apply_to(Some(first.clone()), EpochSeconds(9));
        assert_eq!(second.since, EpochSeconds(5));
        assert_eq!(second.role, first.role);
        assert_eq!(second.labels["rack"], "2");
        assert_eq!(second.labels["zone"], "a");
        let out = RosterEntry { decommissioned: Some(EpochSeconds(7)), ..second.clone() };
        let again = patch(None, &[]).apply_to(Some(out), EpochSeconds(9));
        assert_eq!(again, RosterEntry { since: EpochSeconds(9), ..second }, "a host that is back");
    }

    #[test]
    fn a_label_has_a_name_and_a_value() {
        for bad in ["rack", "=1", "a b=1", "rack=\u{1b}"] {
            let failure =
                RosterPatch::parse(&RosterOptions { role: None, group: None, labels: vec![bad.to_owned()] });
            let failure = failure.unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{bad:?}");
        }
    }
}
