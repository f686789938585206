//! Problems of settings that can be found before anything runs: roles that wait for each other
//! forever, needs that no host meets, files with two writers, and services without a DNS name or a
//! check.

use crate::Settings;
use catalog::definitions::Definitions;
use catalog::requires::{Count, Requirement};
use catalog::{StoredRecord, catalog_at_once};
use fleet::{Member, Prospect, Root, WaitGraph};
use schema::names::{HostName, ServiceName};
use schema::records::{ServiceRecord, Wait};
use schema::time::EpochSeconds;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The configuration of one kind of host.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Where the configuration comes from, for messages.
    pub source: String,
    /// The settings of the agent.
    pub settings: Settings,
    /// The services of the host.
    pub definitions: Definitions,
}

/// How severe a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot work.
    Error,
    /// The configuration may be intended.
    Warning,
}

/// A problem that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// How severe the problem is.
    pub severity: Severity,
    /// The source of the configuration that has the problem.
    pub source: String,
    /// A description of the problem.
    pub message: String,
}

/// True if the settings say nothing by which a store with users could know the agent: neither a user nor a certificate.
pub fn names_no_user(settings: &Settings) -> bool {
    settings.store.user.is_none() && settings.store.cert.is_none()
}

/// Checks all configurations together and returns the diagnostics in order.
pub fn lint(hosts: &[HostConfig]) -> Vec<Diagnostic> {
    let mut diagnostics = BTreeSet::new();
    let mut add = |severity, source: &str, message: String| {
        diagnostics.insert(Diagnostic { severity, source: source.to_owned(), message });
    };
    for config in hosts {
        for message in store_mistakes(&config.settings) {
            add(Severity::Error, &config.source, message);
        }
        for (file, writers) in writers(config) {
            if writers.len() > 1 {
                let message = format!("{} has two writers: {}", file.display(), writers.join(" and "));
                add(Severity::Error, &config.source, message);
            }
        }
        for (name, service) in &config.definitions.services {
            if name.as_str().contains('.') || name.as_str().len() > 63 {
                add(
                    Severity::Warning,
                    &config.source,
                    format!("service {name} is no DNS label: it has no name in DNS"),
                );
            }
            if service.checks.is_empty() && config.definitions.host_checks.is_empty() {
                let message =
                    format!("service {name} has no check: it counts as functional from its first moment");
                add(Severity::Warning, &config.source, message);
            }
        }
    }
    let provided: BTreeSet<&ServiceName> =
        hosts.iter().flat_map(|config| config.definitions.services.keys()).collect();
    for config in hosts {
        for requirement in &config.settings.policy.requires {
            if !provided.contains(&requirement.service) {
                let message = format!("it needs {}, which no host here has", requirement.service);
                add(Severity::Warning, &config.source, message);
            }
        }
    }
    for (source, message) in loops(hosts) {
        add(Severity::Error, &source, message);
    }
    diagnostics.into_iter().collect()
}

/// Returns what cannot work together in the settings of the store. The agent refuses it, unless
/// variables of its environment say something else.
fn store_mistakes(settings: &Settings) -> Vec<String> {
    let store = &settings.store;
    let mut mistakes = Vec::new();
    match (&store.cert, &store.key) {
        (Some(_), None) => mistakes.push("store.cert and store.key go together: key is missing".to_owned()),
        (None, Some(_)) => mistakes.push("store.cert and store.key go together: cert is missing".to_owned()),
        _ => {}
    }
    let has_tls = store.cacert.is_some() || store.cert.is_some() || store.key.is_some();
    let plain = store.endpoints.iter().flatten().filter(|e| has_tls && e.starts_with("http://"));
    mistakes.extend(plain.map(|endpoint| {
        format!("store.endpoints: {endpoint} is plain text, but TLS files are configured; write https://")
    }));
    mistakes
}

/// Returns the files that are written, each with its writers.
fn writers(config: &HostConfig) -> BTreeMap<PathBuf, Vec<String>> {
    let Settings { templates, catalog, version_file, state_directory, .. } = &config.settings;
    let mut writers: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    let mut add = |path: &Path, who: String| writers.entry(path.to_owned()).or_default().push(who);
    for template in templates {
        add(&template.target, format!("the template {}", template.source.display()));
        if template.target.starts_with(state_directory) {
            add(&template.target, "the agent, whose state directory it is in".into());
        }
        // A template must not write the source of another template, which somebody maintains.
        for other in templates.iter().filter(|other| other.source == template.target) {
            add(&template.target, format!("whoever maintains the source of {}", other.target.display()));
        }
    }
    catalog.hiera_file.iter().for_each(|path| add(path, "catalog.hiera_file".into()));
    add(version_file, "the agent, which records the version there".into());
    writers
}

/// Returns the deadlocks between roles, each with its source. They are computed as for hosts, with
/// one host of each role, where only the services of roles without needs work.
fn loops(hosts: &[HostConfig]) -> Vec<(String, String)> {
    let name = |number: usize, config: &HostConfig| {
        let role = config.settings.role.as_ref().map(|role| role.as_str().to_owned());
        let plain = role.filter(|role| HostName::check(role).is_ok());
        HostName::new(plain.unwrap_or_else(|| format!("host-{}", number + 1))).ok()
    };
    let mut members = BTreeMap::new();
    let mut records = BTreeMap::new();
    let mut sources = BTreeMap::new();
    for (number, config) in hosts.iter().enumerate() {
        let Some(host) = name(number, config) else { continue };
        let waits: Vec<Wait> = config.settings.policy.requires.iter().filter_map(one_of).collect();
        let prospect = if waits.is_empty() { Prospect::Open(String::new()) } else { Prospect::Waits(waits) };
        members.insert(
            host.clone(),
            Member { prospect, target: None, since: EpochSeconds(0), failing: Vec::new() },
        );
        sources.insert(host.clone(), config.source.clone());
        for service in config.definitions.services.keys() {
            let record = Arc::new(ServiceRecord::default());
            records.insert((service.clone(), host.clone()), StoredRecord::new(record, true));
        }
    }
    let provided: BTreeSet<ServiceName> = records.keys().map(|(service, _)| service.clone()).collect();
    // A service that no host here has may come from elsewhere. Another diagnostic names it.
    for member in members.values_mut() {
        if let Prospect::Waits(waits) = &mut member.prospect {
            waits.retain(|wait| provided.contains(&wait.service));
            if waits.is_empty() {
                member.prospect = Prospect::Settled;
            }
        }
    }
    // Only what is configured counts here: a role without needs provides its own services and no
    // others.
    for member in members.values_mut() {
        if matches!(member.prospect, Prospect::Open(_)) {
            member.prospect = Prospect::Settled;
        }
    }
    let healths = members.iter().filter(|(_, m)| m.prospect == Prospect::Settled).flat_map(|(host, _)| {
        let of = records.keys().filter(move |(_, on)| on == host);
        of.map(|key| (key.clone(), schema::health::Health::Passing))
    });
    let healths: Vec<_> = healths.collect();
    let view = catalog_at_once(records, healths);
    let graph = WaitGraph::new(members, &view);
    let mut found = Vec::new();
    for root in graph.roots().keys() {
        if let Root::Loop(ring) = root {
            let source =
                ring.first().and_then(|waiting| sources.get(&waiting.host)).cloned().unwrap_or_default();
            found.push((source, format!("a deadlock: {root}")));
        }
    }
    found
}

/// Returns the requirement as a need for one instance, because the number of hosts is not known:
/// one host stands for all hosts of a role. `None` if the requirement waits for nothing.
fn one_of(requirement: &Requirement) -> Option<Wait> {
    if requirement.count == Count::AtLeast(0) {
        return None;
    }
    Some(Wait {
        service: requirement.service.clone(),
        level: requirement.level,
        need: 1,
        have: 0,
        phase: requirement.phase,
        step: requirement.step.clone(),
        unreachable: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::definitions::{assemble, parse_file};

    fn host_config(role: &str, settings: &str, services: &str) -> HostConfig {
        let text = format!("role = \"{role}\"\n{settings}");
        let parsed = parse_file("s.toml", services).unwrap();
        HostConfig {
            source: format!("{role}.toml"),
            settings: crate::read(&[("a".into(), text)]).unwrap(),
            definitions: assemble([("s", &parsed)]).0,
        }
    }

    fn service(name: &str) -> String {
        format!(
            "[[service]]\nname = \"{name}\"\n[[service.check]]\ntcp = \"localhost:1\"\ninterval = \"1s\"\n"
        )
    }

    fn needs(service: &str, level: &str, phase: &str) -> String {
        format!("[[requires]]\nservice = \"{service}\"\nlevel = \"{level}\"\nphase = \"{phase}\"\n")
    }

    fn check(hosts: &[HostConfig], expected: &[&str]) {
        let found: Vec<String> =
            lint(hosts).iter().map(|f| format!("{:?} {}: {}", f.severity, f.source, f.message)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn loops_through_what_works_are_found_and_loops_through_addresses_settle() {
        let pair = |one: &str, two: &str, phase: &str| {
            [
                host_config("balancer", &needs("controller", one, phase), &service("balancer")),
                host_config("controller", &needs("balancer", two, phase), &service("controller")),
            ]
        };
        check(&pair("addressable", "addressable", "apply"), &[]);
        check(&pair("functional", "addressable", "apply"), &[]);
        check(&pair("functional", "functional", "validate"), &[]);
        check(
            &pair("functional", "functional", "converge"),
            &[
                "Error balancer.toml: a deadlock: balancer waits for controller on controller, controller waits for balancer on balancer",
            ],
        );
        let mut with_other = pair("functional", "functional", "apply").to_vec();
        with_other.push(host_config("spare", "", &service("controller")));
        check(&with_other, &[]);
    }

    #[test]
    fn two_writers_and_needs_that_nobody_meets_are_named() {
        let template = "[[template]]\nsource = \"/etc/t\"\ntarget = \"/etc/x\"\n";
        check(
            &[host_config("web", &format!("[catalog]\nhiera_file = \"/etc/x\"\n{template}"), "")],
            &["Error web.toml: /etc/x has two writers: the template /etc/t and catalog.hiera_file"],
        );
        check(
            &[host_config("web", "[store]\nendpoints = [\"http://a:1\"]\ncert = \"/c\"\n", "")],
            &[
                "Error web.toml: store.cert and store.key go together: key is missing",
                "Error web.toml: store.endpoints: http://a:1 is plain text, but TLS files are configured; write https://",
            ],
        );
        check(
            &[host_config("web", &needs("mysql", "functional", "apply"), "[[service]]\nname = \"a.b\"\n")],
            &[
                "Warning web.toml: it needs mysql, which no host here has",
                "Warning web.toml: service a.b has no check: it counts as functional from its first moment",
                "Warning web.toml: service a.b is no DNS label: it has no name in DNS",
            ],
        );
    }
}
