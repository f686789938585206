//! The answers to the questions of Puppet.

use crate::agent::Agent;
use crate::catalogs::PinnedCatalog;
use crate::question::{Question, Which};
use catalog::{Data, InstanceView, QueryType, ResponseCode, View};
use schema::health::Level;
use schema::names::{InterfaceName, ServiceName, quoted};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Answers a question from a pinned catalog, and from the agent where the catalog lacks health or a
/// claim. Returns `None` if the requested thing does not exist.
///
/// # Errors
/// The reason why the answer is not known.
pub(crate) fn answer(
    question: &Question,
    held: &mut PinnedCatalog,
    agent: &Agent,
) -> Result<Option<Value>, String> {
    let value = match question {
        Question::Services(which) => {
            let level = which.level.unwrap_or(Level::Addressable);
            know(level, &which.name, held, agent)?;
            json!(instances(which, level, held.view()).collect::<Vec<_>>())
        }
        Question::Addresses { which, interface } => {
            let level = which.level.unwrap_or(Level::Addressable);
            know(level, &which.name, held, agent)?;
            json!(addresses(which, level, interface.as_ref(), held.view()))
        }
        Question::Hosts { role } => {
            let service = held.view().service(role);
            let found = service.into_iter().flat_map(|service| service.at(Level::Addressable, None));
            json!(found.map(|(host, _)| host).collect::<Vec<_>>())
        }
        Question::Ready { which, count, .. } => {
            let level = which.level.unwrap_or(Level::Functional);
            know(level, &which.name, held, agent)?;
            json!(instances(which, level, held.view()).count() >= *count)
        }
        Question::Dns { name } => {
            let mut found = BTreeSet::new();
            for kind in [QueryType::A, QueryType::Aaaa] {
                for data in resolve(name, kind, held, agent)? {
                    match data {
                        Data::A(ip) => drop(found.insert(IpAddr::V4(ip))),
                        Data::Aaaa(ip) => drop(found.insert(IpAddr::V6(ip))),
                        _ => {}
                    }
                }
            }
            json!(found)
        }
        Question::Srv { name } => {
            let mut found = resolve(name, QueryType::Srv, held, agent)?;
            found.sort();
            let shown = |data: &Data| match data {
                Data::Srv { port, target } => {
                    Some(json!({ "target": target, "port": port, "priority": 1, "weight": 1 }))
                }
                _ => None,
            };
            found.iter().filter_map(shown).collect()
        }
        Question::Reverse { address } => {
            let Some(host) = held.view().nodes().host_of(address) else { return Ok(None) };
            let host = host.as_str().to_ascii_lowercase();
            json!(format!("{host}.node.{}", held.zone()?.domain))
        }
        Question::Entry { key } => {
            let Some(name) = catalog::service_of_entry(key) else { return Ok(None) };
            let found = held.view().service(&name).map(|service| catalog::hiera_entries(&name, service));
            let Some(list) = found.and_then(|mut found| found.remove(key)) else { return Ok(None) };
            json!(list)
        }
        Question::Entries => {
            let services = held.view().services().iter();
            json!(
                services
                    .flat_map(|(name, service)| catalog::hiera_entries(name, service))
                    .collect::<BTreeMap<_, _>>()
            )
        }
        Question::Key { .. } => return Err("only the agent can answer that".into()),
    };
    Ok(Some(value))
}

/// Makes sure that the health of the service is known, if the level requires it.
fn know(level: Level, service: &ServiceName, held: &mut PinnedCatalog, agent: &Agent) -> Result<(), String> {
    if level == Level::Addressable
        || held.view().health_known(service)
        || held.view().service(service).is_none()
    {
        return Ok(());
    }
    let health = agent.health(service).map_err(|error| {
        format!(
            "which instances of {service} work is not in the catalog, because nothing on this host followed it \
             (catalog.follow in agent.toml); and {error}"
        )
    })?;
    held.learn(service, health);
    Ok(())
}

fn instances<'a>(which: &'a Which, level: Level, view: &'a View) -> impl Iterator<Item = InstanceView<'a>> {
    let service = view.service(&which.name);
    let found = service.into_iter().flat_map(move |service| service.at(level, which.tag.as_ref()));
    found.map(|(host, instance)| InstanceView::new(host, instance))
}

fn addresses(
    which: &Which,
    level: Level,
    interface: Option<&InterfaceName>,
    view: &View,
) -> BTreeSet<IpAddr> {
    let service = view.service(&which.name);
    let mut found = BTreeSet::new();
    for (_, instance) in service.into_iter().flat_map(|s| s.at(level, which.tag.as_ref())) {
        let record = &instance.record;
        match interface {
            None => found.extend(record.addresses.first().copied()),
            Some(wanted) => {
                let of = record.interfaces.iter().filter(|(name, _)| name == wanted);
                found.extend(of.flat_map(|(_, list)| list.iter().copied()));
            }
        }
    }
    found
}

/// Returns the records that the agent's DNS server would give for a name.
fn resolve(
    name: &str,
    kind: QueryType,
    held: &mut PinnedCatalog,
    agent: &Agent,
) -> Result<Vec<Data>, String> {
    let folded = name.trim_end_matches('.').to_ascii_lowercase();
    let question = catalog::Question { labels: folded.split('.').collect(), kind };
    let mut answer = catalog::answer(&question, held.view(), held.zone()?);
    if let (ResponseCode::NotReady, Some(service)) = (answer.code, answer.service.clone()) {
        know(Level::Functional, &service, held, agent)?;
        answer = catalog::answer(&question, held.view(), held.zone()?);
    }
    if let Some(host) = answer.host.take() {
        let claim = agent.claim(&host).map_err(|error| {
            format!("{host} has no service, and whether it lives is not in the catalog; and {error}")
        })?;
        answer = answer.with_claim(&claim, kind);
    }
    match answer.code {
        ResponseCode::NoError | ResponseCode::NoSuchName => {
            Ok(answer.records.into_iter().map(|record| record.data).collect())
        }
        ResponseCode::NotReady => Err("the catalog has not been read yet".into()),
        ResponseCode::Refused => {
            Err(format!("{} is not below {}, the zone of the agent", quoted(name), held.zone()?.domain))
        }
    }
}

#[cfg(test)]
mod tests;
