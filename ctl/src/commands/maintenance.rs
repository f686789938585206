//! `maintenance` and `drain`, which take a host or service out of use, and `drop-stale`.

use super::context::{Store, now};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::Args;
use schema::codec;
use schema::keys::Key;
use schema::names::ServiceName;
use schema::records::{Maintenance, MaintenanceEntry, MaintenanceMode};
use schema::writes::operator;
use serde_json::json;

/// Let a host, or a service on it, count as critical while somebody works on it
#[derive(Debug, Args)]
pub(crate) struct SetMaintenance {
    /// on or off
    #[arg(value_parser = ["on", "off"])]
    switch: String,
    /// Only this service
    #[arg(add = completion::services())]
    service: Option<String>,
    /// A host other than this one
    #[arg(long, add = completion::hosts())]
    hostname: Option<String>,
    /// Reason, for others to read
    #[arg(long)]
    reason: Option<String>,
}

/// Drain a host, or a service on it: it takes nothing new
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Only this service
    #[arg(add = completion::services())]
    service: Option<String>,
    /// A host other than this one
    #[arg(long, add = completion::hosts())]
    hostname: Option<String>,
    /// Reason, for others to read
    #[arg(long)]
    reason: Option<String>,
    /// End draining
    #[arg(long)]
    off: bool,
}

/// Runs `maintenance`.
pub(super) async fn maintenance(
    options: SetMaintenance,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let request = MaintenanceRequest {
        how: MaintenanceMode::Maintenance,
        on: options.switch == "on",
        service: options.service.as_deref(),
        hostname: options.hostname.as_deref(),
        reason: options.reason.as_deref(),
    };
    set(request, store, output).await
}

/// Runs `drain`.
pub(super) async fn drain(options: Drain, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let request = MaintenanceRequest {
        how: MaintenanceMode::Draining,
        on: !options.off,
        service: options.service.as_deref(),
        hostname: options.hostname.as_deref(),
        reason: options.reason.as_deref(),
    };
    set(request, store, output).await
}

/// What `maintenance` or `drain` asks for.
struct MaintenanceRequest<'a> {
    how: MaintenanceMode,
    /// True to take out of use, false to end that.
    on: bool,
    service: Option<&'a str>,
    hostname: Option<&'a str>,
    reason: Option<&'a str>,
}

/// Longest reason, in bytes.
const REASON_MAX_BYTES: usize = 256;

/// Takes a host, or a service on it, out of use, or puts it back into use.
async fn set(
    request: MaintenanceRequest<'_>,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let host = store.settings.host(request.hostname)?;
    let service = request.service.map(ServiceName::new).transpose().map_err(Failure::usage)?;
    let reason = request.reason.unwrap_or_default();
    if reason.len() > REASON_MAX_BYTES {
        return Err(Failure::usage(anyhow!("the reason is longer than {REASON_MAX_BYTES} bytes")));
    }
    let keys = [Key::Maintenance(host.clone()), Key::Live(host.clone()), Key::Host(host.clone())];
    let snapshot = store.session.read_keys(&keys, store.deadline).await?;
    if snapshot.get(&keys[1]).is_none() && snapshot.get(&keys[2]).is_none() {
        return Err(Failure::no(format!("host {host} is not known")));
    }
    let before = snapshot.get(&keys[0]);
    let mut out: Maintenance = match before.map(|entry| codec::read(&entry.value)) {
        Some(Err(error)) => return Err(Failure::cannot_tell(format!("{}: {error}", keys[0]))),
        Some(Ok(out)) => out,
        None => Maintenance::default(),
    };
    let changed = change(&mut out, &request, service.as_ref());
    let revision = if changed {
        let verb = match request.how {
            MaintenanceMode::Maintenance => "maintenance",
            MaintenanceMode::Draining => "drain",
        };
        let act = store.act(verb, request.reason).await?;
        let transaction = operator::set_maintenance(&host, &out, &snapshot, &act);
        let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
        if !committed.applied {
            return Err(Failure::cannot_tell(
                "it was changed at the same time by another command; check it and repeat the command",
            ));
        }
        committed.revision
    } else {
        before.map_or(0, |entry| entry.mod_revision)
    };
    if snapshot.get(&keys[1]).is_none() {
        output::warn(&format!("no agent runs on {host}; this takes effect when its agent starts"));
    }
    let answer = json!({ "host": host, "service": service, "changed": changed, "revision": revision });
    output.answer(&answer, |_| {});
    Ok(Exit::Yes)
}

fn change(out: &mut Maintenance, request: &MaintenanceRequest<'_>, service: Option<&ServiceName>) -> bool {
    let before = out.clone();
    let entry = || MaintenanceEntry {
        how: request.how,
        reason: request.reason.unwrap_or_default().to_owned(),
        at: now(),
    };
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

/// Asks every agent to stop serving retained instances.
pub(super) async fn drop_stale(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let found = store.session.read_keys(&[Key::DropStale], store.deadline).await?;
    let act = store.act("drop-stale", None).await?;
    let revision = store.commit(&operator::request_drop_stale(now(), &found, &act)).await?;
    output.answer(&json!({ "revision": revision }), |_| {});
    Ok(Exit::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_and_off_concern_what_they_name() {
        let web = ServiceName::new("web").unwrap();
        let request =
            |how, on| MaintenanceRequest { how, on, service: None, hostname: None, reason: Some("disk") };
        let mut out = Maintenance::default();
        assert!(change(&mut out, &request(MaintenanceMode::Maintenance, true), Some(&web)));
        assert!(
            !change(&mut out, &request(MaintenanceMode::Maintenance, true), Some(&web)),
            "the same again"
        );
        assert!(change(&mut out, &request(MaintenanceMode::Draining, true), None));
        assert_eq!(out.of(&web).unwrap().how, MaintenanceMode::Maintenance, "it weighs more");
        assert!(!change(&mut out, &request(MaintenanceMode::Draining, false), Some(&web)), "another kind");
        assert!(change(&mut out, &request(MaintenanceMode::Maintenance, false), Some(&web)));
        assert_eq!(out.of(&web).unwrap().how, MaintenanceMode::Draining);
        assert!(change(&mut out, &request(MaintenanceMode::Draining, false), None));
        assert!(out.is_empty());
    }
}
