//! `maintenance` and `drain`, which take a host or service out of use.

use super::catalog::view_of;
use crate::commands::answers;
use crate::commands::context::{Store, now};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use catalog::View;
use clap::Args;
use fleet::{Remaining, remaining};
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, ServiceName};
use schema::records::{Maintenance, MaintenanceEntry, MaintenanceMode};
use schema::snapshot::KeySnapshot;
use schema::writes::operator;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// Let services count as critical during work on a host
#[derive(Debug, Args)]
pub(crate) struct SetMaintenance {
    /// on: take the services out; off: take them in again
    #[arg(value_parser = ["on", "off"])]
    switch: String,
    #[command(flatten)]
    target: TargetOptions,
}

/// Stop sending new work to a host's services
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    target: TargetOptions,
    /// End draining
    #[arg(long)]
    off: bool,
}

/// What is taken out of use.
#[derive(Debug, Args)]
struct TargetOptions {
    /// Host whose services are meant
    #[arg(add = completion::hosts())]
    host: Option<String>,
    /// Instead of HOST: the host on which this command runs
    #[arg(long, conflicts_with = "host")]
    this_host: bool,
    /// Only this service
    #[arg(long, add = completion::services())]
    service: Option<String>,
    /// Reason, shown to other operators
    #[arg(long)]
    reason: Option<String>,
    /// Take the last functional instance of a service too
    #[arg(long)]
    force: bool,
    /// Replaced by the argument HOST
    #[arg(long, hide = true, conflicts_with = "this_host")]
    hostname: Option<String>,
}

impl Verb for SetMaintenance {
    const SPEC: Spec = Spec {
        name: "maintenance",
        group: Group::Services,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<MaintenanceAnswer<'_>>),
        examples: &[
            ("orchestrate maintenance on web-7 --reason 'new disk'", "take the services of a host out"),
            ("orchestrate maintenance off web-7", "take them in again"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { switch, target } = self;
        set(&target, MaintenanceMode::Maintenance, switch == "on", store, output).await
    }
}

impl Verb for Drain {
    const SPEC: Spec = Spec {
        name: "drain",
        group: Group::Services,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<MaintenanceAnswer<'_>>),
        examples: &[
            ("orchestrate drain web-7", "stop sending new work to a host's services"),
            ("orchestrate drain web-7 --off", "end draining"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { target, off } = self;
        set(&target, MaintenanceMode::Draining, !off, store, output).await
    }
}

/// What `maintenance` or `drain` asks for.
#[derive(Debug, Clone, Copy)]
struct MaintenanceRequest<'a> {
    how: MaintenanceMode,
    /// True to take out of use, false to end that.
    on: bool,
    reason: &'a str,
}

/// Longest reason, in bytes.
const REASON_MAX_BYTES: usize = 256;

/// How often the command tries again if something changes at the same time.
const TRIES: usize = 3;

/// Takes a host, or a service on it, out of use, or puts it back into use.
async fn set(
    options: &TargetOptions,
    how: MaintenanceMode,
    on: bool,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let verb = verb(how, on);
    if options.hostname.is_some() && options.host.is_some() && options.service.is_some() {
        let text = format!("the service is named twice; use `orchestrate {verb} HOST --service SERVICE`");
        return Err(Failure::usage(anyhow!(text)));
    }
    if options.host.is_none() && !options.this_host && options.hostname.is_none() {
        let text = format!(
            "name the host: `orchestrate {verb} HOST`, or `orchestrate {verb} --this-host`; the option --host names the store"
        );
        return Err(Failure::usage(anyhow!(text)));
    }
    let request = MaintenanceRequest { how, on, reason: options.reason.as_deref().unwrap_or_default() };
    if request.reason.len() > REASON_MAX_BYTES {
        return Err(Failure::usage(anyhow!("the reason is longer than {REASON_MAX_BYTES} bytes")));
    }
    let own =
        if options.this_host { Some(store.settings.host(None)?) } else { store.settings.host(None).ok() };
    let names = [&options.hostname, &options.host].into_iter().flatten();
    let names: BTreeSet<HostName> =
        names.filter_map(|name| HostName::folded(name).ok()).chain(own.clone()).collect();
    let keys: Vec<Key> =
        names.into_iter().flat_map(|host| [Key::Live(host.clone()), Key::Host(host)]).collect();
    let ranges = [Prefix::Services, Prefix::HealthAll, Prefix::Maintenances];
    for _ in 0..TRIES {
        store.prepare_act();
        let found = store.session.read_all(&keys, &ranges, None, store.deadline).await?;
        let catalog = view_of(&found);
        let Target { host, service, warning } = Target::find(options, verb, own.as_ref(), &catalog, &found)?;
        let key = Key::Maintenance(host.clone());
        let mut marks = match found.read(keys::Maintenance(host.clone())) {
            Some(Err(error)) => return Err(Failure::cannot_tell(format!("{key}: {error}"))),
            Some(Ok(marks)) => marks,
            None => Maintenance::default(),
        };
        let changed = change(&mut marks, request, service.as_ref());
        let left = if on { remaining(&catalog, &found, &host, service.as_ref()) } else { Vec::new() };
        if changed && !options.force {
            refuse_last(&left, &host)?;
        }
        let revision = if changed {
            let act = store.act(verb, options.reason.as_deref()).await?;
            let others = if options.force { Vec::new() } else { compared(&left, &host)? };
            let transaction = operator::set_maintenance(&host, &marks, &others, &found, &act);
            let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
            if !committed.applied {
                continue;
            }
            committed.revision
        } else {
            found.revision_of(&key)
        };
        warning.iter().for_each(|warning| output::warn(warning));
        say(request, &host, service.as_ref(), changed, &left);
        if found.get(&Key::Live(host.clone())).is_none() {
            output::warn(&format!("no agent runs on {host}; this takes effect when its agent starts"));
        }
        let answer =
            MaintenanceAnswer { host: &host, service: service.as_ref(), changed, remaining: left, revision };
        output.sorted_answer(&answer, |_| {});
        return Ok(Exit::Yes);
    }
    Err(Failure::cannot_tell(
        "it was changed at the same time by another command; check it and repeat the command",
    ))
}

/// What `maintenance` and `drain` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MaintenanceAnswer<'a> {
    host: &'a HostName,
    service: Option<&'a ServiceName>,
    changed: bool,
    remaining: Vec<Remaining>,
    revision: i64,
}

fn verb(how: MaintenanceMode, on: bool) -> &'static str {
    match (how, on) {
        (MaintenanceMode::Maintenance, true) => "maintenance on",
        (MaintenanceMode::Maintenance, false) => "maintenance off",
        (MaintenanceMode::Draining, _) => "drain",
    }
}

/// The host and the service that are meant; `None` stands for all services.
struct Target {
    host: HostName,
    service: Option<ServiceName>,
    /// What to say of a form that is going to be removed.
    warning: Option<String>,
}

impl Target {
    /// Finds out what is meant. For one release, the argument may also be a service of this host, or of that of
    /// `--hostname`.
    fn find(
        options: &TargetOptions,
        verb: &str,
        own: Option<&HostName>,
        catalog: &View,
        found: &KeySnapshot,
    ) -> Result<Self, Failure> {
        let has = |host: &HostName, service: &ServiceName| {
            catalog.service(service).is_some_and(|found| found.instances().contains_key(host))
                || is_marked(found, host, service)
        };
        let named = options.host.as_deref();
        let parsed = options.hostname.as_deref().or(named).map(HostName::folded).transpose();
        let service = options.service.as_deref().map(ServiceName::new).transpose().map_err(Failure::usage)?;
        let argument = named.and_then(|word| ServiceName::new(word).ok());
        let is_host = matches!(&parsed, Ok(Some(host)) if is_known(host, found));
        if let Some(own) = own
            && options.hostname.is_none()
            && service.is_none()
            && !is_host
            && let Some(old) = argument.as_ref().filter(|old| has(own, old))
        {
            let warning = Some(format!(
                "a service alone is going to be refused; use `orchestrate {verb} --this-host --service {old}`"
            ));
            return Ok(Self { host: own.clone(), service: Some(old.clone()), warning });
        }
        let host = parsed.map_err(Failure::usage)?.or_else(|| own.cloned());
        let host = host.ok_or_else(|| Failure::usage(anyhow!("no host is named")))?;
        let target = if options.hostname.is_some() {
            let service = service.or(argument);
            let form = service.as_ref().map_or_else(String::new, |service| format!(" --service {service}"));
            let warning =
                Some(format!("--hostname is going to be removed; use `orchestrate {verb} {host}{form}`"));
            Self { host, service, warning }
        } else {
            Self { host, service, warning: None }
        };
        if !is_known(&target.host, found) {
            return Err(Failure::no(format!("host {} is not known", target.host)));
        }
        match target.service.as_ref().filter(|service| !has(&target.host, service)) {
            Some(service) => Err(Failure::no(format!("{} has no service {service}", target.host))),
            None => Ok(target),
        }
    }
}

/// True if the host is on the roster, or its agent runs.
fn is_known(host: &HostName, found: &KeySnapshot) -> bool {
    [Key::Live(host.clone()), Key::Host(host.clone())].iter().any(|key| found.get(key).is_some())
}

fn is_marked(found: &KeySnapshot, host: &HostName, service: &ServiceName) -> bool {
    let entry = found.get(&Key::Maintenance(host.clone()));
    let marks = entry.and_then(|entry| keys::Maintenance::read(&entry.value).ok());
    marks.is_some_and(|marks| marks.services.contains_key(service))
}

/// A service must not lose its last functional instance by mistake.
fn refuse_last(left: &[Remaining], host: &HostName) -> Result<(), Failure> {
    let last: Vec<&str> =
        left.iter().filter(|left| left.takes_last).map(|left| left.service.as_str()).collect();
    if last.is_empty() {
        return Ok(());
    }
    let last = last.join(", ");
    Err(Failure::refused(format!(
        "{host} has the last functional instance of {last}; --force takes it out of use anyway. Nothing was changed"
    )))
}

/// Returns the instances that must still be there when the mark is written: one of each service.
fn compared(left: &[Remaining], host: &HostName) -> Result<Vec<(ServiceName, HostName)>, Failure> {
    let others = left.iter().filter_map(|left| Some((left.service.clone(), left.other.clone()?)));
    let others: Vec<_> = others.collect();
    if others.len() <= operator::COMPARED_MAX {
        return Ok(others);
    }
    Err(Failure::refused(format!(
        "{host} has {} services, too many for one comparison; name them one by one with --service, or use --force. Nothing was changed",
        others.len()
    )))
}

/// Says what was done, and what is left of the services.
fn say(
    MaintenanceRequest { how, on, .. }: MaintenanceRequest<'_>,
    host: &HostName,
    service: Option<&ServiceName>,
    changed: bool,
    left: &[Remaining],
) {
    let what = service.map_or_else(|| host.to_string(), |service| format!("{service} on {host}"));
    let is = match how {
        MaintenanceMode::Maintenance => "in maintenance",
        MaintenanceMode::Draining => "draining",
    };
    output::note(&match (on, changed) {
        (true, true) => format!("{what} is {is}"),
        (true, false) => format!("{what} is {is} already; nothing was changed"),
        (false, true) => format!("{what} is not {is} any more"),
        (false, false) => format!("{what} was not {is}; nothing was changed"),
    });
    for Remaining { service, functional_count: functional, instance_count: instances, .. } in left {
        output::note(&format!("{service}: {functional} of {instances} instances stay functional"));
    }
}

fn change(out: &mut Maintenance, request: MaintenanceRequest<'_>, service: Option<&ServiceName>) -> bool {
    let before = out.clone();
    let entry = || MaintenanceEntry { how: request.how, reason: request.reason.to_owned(), at: now() };
    match (service, request.on) {
        (None, true) => out.host = Some(entry()),
        (None, false) => out.host = out.host.take().filter(|known| known.how != request.how),
        (Some(service), true) => {
            out.services.insert(service.clone(), entry());
        }
        (Some(service), false) => {
            out.services.retain(|name, known| name != service || known.how != request.how);
        }
    }
    // A repeated request is no change, although its time differs.
    let summary = |m: &Maintenance| {
        let plain = |o: &MaintenanceEntry| (o.how, o.reason.clone());
        let services: Vec<_> = m.services.iter().map(|(n, o)| (n.clone(), plain(o))).collect();
        (m.host.as_ref().map(plain), services)
    };
    let differs = summary(&before) != summary(out);
    if !differs {
        *out = before;
    }
    differs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_and_off_concern_what_they_name() {
        let web = ServiceName::new("web").unwrap();
        let request = |how, on| MaintenanceRequest { how, on, reason: "disk" };
        let mut out = Maintenance::default();
        assert!(change(&mut out, request(MaintenanceMode::Maintenance, true), Some(&web)));
        assert!(!change(&mut out, request(MaintenanceMode::Maintenance, true), Some(&web)), "the same again");
        assert!(change(&mut out, request(MaintenanceMode::Draining, true), None));
        assert_eq!(out.of(&web).unwrap().how, MaintenanceMode::Maintenance, "it weighs more");
        assert!(!change(&mut out, request(MaintenanceMode::Draining, false), Some(&web)), "another kind");
        assert!(change(&mut out, request(MaintenanceMode::Maintenance, false), Some(&web)));
        assert_eq!(out.of(&web).unwrap().how, MaintenanceMode::Draining);
        assert!(change(&mut out, request(MaintenanceMode::Draining, false), None));
        assert!(out.is_empty());
    }
}
