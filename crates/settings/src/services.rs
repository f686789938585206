//! The settings of the catalog: services that the host publishes, DNS names, needs, and files that
//! follow the catalog.

use crate::command::{absolute, absolute_path};
use crate::error::Problems;
use catalog::GuardSettings;
use catalog::requires::{Count, Requirement};
use planning::host::Steps;
use schema::health::Level;
use schema::names::{HostName, InterfaceName, Role, ServiceName, StepName};
use schema::steps::StepPhase;
use schema::time::Span;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The services that the host publishes, and how it checks them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicesSettings {
    /// Directories with service files: `*.json` in the format of Consul, and `*.toml` in the format
    /// of this project.
    pub directories: Vec<PathBuf>,
    /// The list of roles of the original tool. Each role is a service.
    pub profile_list: Option<PathBuf>,
    /// The interfaces whose addresses others should use, the best first; all interfaces if empty.
    pub interfaces: Vec<InterfaceName>,
    /// The addresses that others should use, independent of the interfaces.
    pub addresses: Vec<IpAddr>,
    /// Largest number of checks that run at the same time.
    pub checks_at_once: usize,
    /// How long the addresses of a host remain in the store when the host is gone. It should be
    /// longer than a reboot.
    pub work_lease: Duration,
}

/// How the agent follows the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogSettings {
    /// Services whose health is always followed. The health of other services is followed when
    /// somebody asks for it.
    pub follow: BTreeSet<ServiceName>,
    /// Time without a request after which the health of a service is no longer followed.
    pub forget_after: Duration,
    /// The YAML file that Hiera reads, if one is written.
    pub hiera_file: Option<PathBuf>,
    /// Largest number of instances. A larger catalog is not taken in, and the previous one is still
    /// served.
    pub entries_max: usize,
    /// When the guard retains instances that stopped reporting together.
    pub guard: GuardSettings,
}

/// The settings of the DNS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    /// The addresses that it listens on, by UDP and TCP; none if empty.
    pub listen: Vec<SocketAddr>,
    /// The domain of the names, in lower case, without dots at its ends.
    pub domain: String,
    /// The name of this datacenter, in lower case.
    pub datacenter: Option<String>,
    /// Time to live of an answer.
    pub ttl: Duration,
    /// How long others may cache that a name does not exist.
    pub negative_ttl: Duration,
    /// The servers that are asked for other names. Other names are refused if empty.
    pub forwarders: Vec<SocketAddr>,
}

/// A file rendered from the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSettings {
    /// The path of the template.
    pub source: PathBuf,
    /// The path of the rendered file.
    pub target: PathBuf,
    /// The file mode of the rendered file.
    pub mode: u32,
    /// Command that says whether a new file is good, before it replaces the old one. The path of
    /// the new file replaces `{file}`.
    pub check: Option<Vec<String>>,
    /// Command that runs after the file changed. If it fails, the old file is restored.
    pub on_change: Option<Vec<String>>,
    /// Longest run time of `check`, and of `on_change`.
    pub timeout: Duration,
    /// Time in which several changes count as one.
    pub debounce: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServicesFragment {
    directories: Option<Vec<PathBuf>>,
    profile_list: Option<PathBuf>,
    interfaces: Vec<InterfaceName>,
    addresses: Vec<IpAddr>,
    checks_at_once: Option<usize>,
    work_lease: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CatalogFragment {
    follow: BTreeSet<ServiceName>,
    forget_after: Option<Span>,
    hiera_file: Option<PathBuf>,
    entries_max: Option<usize>,
    guard_percent: Option<usize>,
    guard_at_least: Option<usize>,
    guard_window: Option<Span>,
    guard_linger: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DnsFragment {
    listen: Option<Vec<SocketAddr>>,
    domain: Option<String>,
    datacenter: Option<String>,
    ttl: Option<Span>,
    negative_ttl: Option<Span>,
    forwarders: Vec<SocketAddr>,
}

/// A number, or the word `all`.
#[derive(Debug)]
pub(super) enum CountFragment {
    Number(u32),
    All,
}

impl<'de> Deserialize<'de> for CountFragment {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl serde::de::Visitor<'_> for CountVisitor {
    type Value = CountFragment;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number, 0 or more, or \"all\"")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<CountFragment, E> {
        let count = u32::try_from(number).map(CountFragment::Number);
        count.map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<CountFragment, E> {
        match word {
            "all" => Ok(CountFragment::All),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequiresFragment {
    service: ServiceName,
    count: Option<CountFragment>,
    role: Option<Role>,
    #[serde(default)]
    level: Level,
    phase: StepPhase,
    step: Option<StepName>,
    probe: Option<Vec<String>>,
    /// Known here so that a fragment can contain it; used and removed when fragments are merged.
    #[serde(default, rename = "replace")]
    _replace: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateFragment {
    source: PathBuf,
    target: PathBuf,
    mode: Option<String>,
    check: Option<Vec<String>>,
    on_change: Option<Vec<String>>,
    timeout: Option<Span>,
    debounce: Option<Span>,
    /// Known here so that a fragment can contain it; used and removed when fragments are merged.
    #[serde(default, rename = "replace")]
    _replace: bool,
}

pub(super) fn services(fragment: ServicesFragment, problems: &mut Problems) -> ServicesSettings {
    let work_lease = fragment.work_lease.map_or(Duration::from_secs(900), |s| s.0);
    if work_lease < Duration::from_secs(5) {
        problems.add("services.work_lease", "must be at least 5s");
    }
    let checks_at_once = fragment.checks_at_once.unwrap_or(16);
    if checks_at_once == 0 {
        problems.add("services.checks_at_once", "must be at least 1");
    }
    ServicesSettings {
        directories: fragment.directories.unwrap_or_else(|| vec!["/etc/orchestrate/services.d".into()]),
        profile_list: fragment.profile_list,
        interfaces: fragment.interfaces,
        addresses: fragment.addresses,
        checks_at_once,
        work_lease,
    }
}

pub(super) fn catalog(fragment: CatalogFragment, problems: &mut Problems) -> CatalogSettings {
    let default = GuardSettings::default();
    let percent = fragment.guard_percent.unwrap_or(default.percent);
    if percent > 100 {
        problems.add("catalog.guard_percent", format!("must be at most 100, not {percent}"));
    }
    CatalogSettings {
        follow: fragment.follow,
        forget_after: fragment.forget_after.map_or(Duration::from_secs(600), |s| s.0),
        hiera_file: fragment.hiera_file,
        entries_max: fragment.entries_max.unwrap_or(1_000_000),
        guard: GuardSettings {
            percent,
            at_least: fragment.guard_at_least.unwrap_or(default.at_least),
            window: fragment.guard_window.map_or(default.window, |s| s.0),
            linger: fragment.guard_linger.map_or(default.linger, |s| s.0),
        },
    }
}

pub(super) fn dns(fragment: DnsFragment, problems: &mut Problems) -> DnsSettings {
    let domain = fragment.domain.unwrap_or_else(|| "consul".into());
    let domain = domain.trim_matches('.').to_ascii_lowercase();
    problems.check("dns.domain", HostName::check(&domain).map_err(|e| e.to_string()));
    if let Some(datacenter) = &fragment.datacenter {
        let one_label = match HostName::check(datacenter) {
            Ok(()) if datacenter.contains('.') => {
                Err(format!("{datacenter:?} must be one label, without dots"))
            }
            checked => checked.map_err(|e| e.to_string()),
        };
        problems.check("dns.datacenter", one_label);
    }
    DnsSettings {
        listen: fragment.listen.unwrap_or_else(|| vec![SocketAddr::from(([127, 0, 0, 1], 8600))]),
        domain,
        datacenter: fragment.datacenter.map(|name| name.to_ascii_lowercase()),
        ttl: fragment.ttl.map_or(Duration::from_secs(5), |s| s.0),
        negative_ttl: fragment.negative_ttl.map_or(Duration::from_secs(5), |s| s.0),
        forwarders: fragment.forwarders,
    }
}

pub(super) fn requires(
    fragments: Vec<RequiresFragment>,
    steps: &Steps,
    problems: &mut Problems,
) -> Vec<Requirement> {
    let mut requires = Vec::new();
    for (number, fragment) in fragments.into_iter().enumerate() {
        let RequiresFragment { service, count, role, level, phase, step, probe, _replace } = fragment;
        let at = |setting: &str| format!("requires.{number}.{setting}");
        let count = match (count, role) {
            (None, None) => Count::AtLeast(1),
            (Some(CountFragment::Number(count)), None) => Count::AtLeast(count),
            (Some(CountFragment::All), role) => {
                // If no role is given, the role has the name of the service.
                match role.map_or_else(|| Role::new(service.as_str()), Ok) {
                    Ok(role) => Count::All(role),
                    Err(error) => {
                        problems.add(at("count"), error.to_string());
                        continue;
                    }
                }
            }
            (_, Some(_)) => {
                problems.add(at("role"), "a role goes with count = \"all\"");
                continue;
            }
        };
        if phase == StepPhase::OnSuspect {
            problems.add(at("phase"), "must be \"prefetch\", \"apply\", \"converge\" or \"validate\"");
        }
        if let Some(step) = &step
            && !problems.lost_tables
            && !steps.of(phase).iter().any(|known| known.name == *step)
        {
            problems.add(at("step"), format!("phase {phase} has no step {step}"));
        }
        if let Some(probe) = &probe {
            problems.check(at("probe"), absolute(probe));
        }
        requires.push(Requirement { service, count, level, phase, step, probe });
    }
    requires
}

pub(super) fn templates(fragments: Vec<TemplateFragment>, problems: &mut Problems) -> Vec<TemplateSettings> {
    let mut templates = Vec::new();
    for (number, fragment) in fragments.into_iter().enumerate() {
        let at = |setting: &str| format!("template.{number}.{setting}");
        for (setting, path) in [("source", &fragment.source), ("target", &fragment.target)] {
            problems.check(at(setting), absolute_path(path));
        }
        let mode = fragment.mode.as_deref().unwrap_or("0644");
        let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
        if mode.is_none() {
            problems.add(at("mode"), "must be octal, as in \"0644\"");
        }
        for (setting, command) in [("check", &fragment.check), ("on_change", &fragment.on_change)] {
            if let Some(command) = command {
                problems.check(at(setting), absolute(command));
            }
        }
        templates.push(TemplateSettings {
            mode: mode.unwrap_or_default(),
            check: fragment.check,
            on_change: fragment.on_change,
            timeout: fragment.timeout.map_or(Duration::from_secs(30), |s| s.0),
            debounce: fragment.debounce.map_or(Duration::from_secs(1), |s| s.0),
            source: fragment.source,
            target: fragment.target,
        });
    }
    templates
}
