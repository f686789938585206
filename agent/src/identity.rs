//! The identity of this agent (host name, instance, machine, boot, addresses) and facts about the
//! machine.

use crate::files::Directory;
use anyhow::{Context, Result};
use schema::names::{HostName, Token};
use schema::records::{LiveClaim, MachineInfo, STORE_FORMAT};
use settings::Settings;
use std::path::Path;

/// The identity of this agent.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The host's name in the fleet; it does not change while the agent runs.
    pub host: HostName,
    /// The same name as it is spelled, if it has capitals: older agents kept it.
    pub former: Option<HostName>,
    /// The machine id; "unknown" if the machine has none.
    pub machine_id: String,
    /// The id of the current boot.
    pub boot_id: String,
}

const IDENTIFIER_MAX_BYTES: u64 = 4096;

impl Identity {
    /// Reads the identity from the settings and the machine.
    ///
    /// # Errors
    /// Returns an error if the name of the machine is not a valid host name, or if the boot id
    /// cannot be read.
    pub(crate) fn read(settings: &Settings) -> Result<Self> {
        let spelled = match &settings.host {
            Some(host) => host.clone(),
            None => {
                let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
                HostName::new(name).context("the name of this machine; set `host` in agent.toml")?
            }
        };
        let boot_id = read_identifier(&settings.boot_id_file)?;
        // Without this file (in some containers) only the state directory identifies the machine.
        let machine_id = read_identifier(&settings.machine_id_file).unwrap_or_else(|_| "unknown".into());
        let (host, former) = (spelled.to_lower(), Some(spelled).filter(HostName::has_capitals));
        Ok(Self { host, former, machine_id, boot_id })
    }

    /// Returns the claim of the host name.
    pub(crate) fn claim(&self, instance: Token, settings: &Settings) -> LiveClaim {
        LiveClaim {
            instance,
            machine_id: self.machine_id.clone(),
            boot_id: self.boot_id.clone(),
            addresses: addresses(),
            agent_version: env!("CARGO_PKG_VERSION").into(),
            driver: settings.policy.driver,
            store_format: STORE_FORMAT,
        }
    }
}

fn read_identifier(path: &Path) -> Result<String> {
    let named = || path.display().to_string();
    let size = std::fs::metadata(path).with_context(named)?.len();
    anyhow::ensure!(
        size <= IDENTIFIER_MAX_BYTES,
        "{} is larger than {IDENTIFIER_MAX_BYTES} bytes",
        path.display()
    );
    let text = std::fs::read_to_string(path).with_context(named)?.trim().to_owned();
    anyhow::ensure!(!text.is_empty(), "{} is empty", path.display());
    Ok(text)
}

const INSTANCE: &str = "instance";

/// Returns the instance that this state directory belongs to. A new one is created at the first
/// use, and with `renew`, after the directory was cloned.
///
/// # Errors
/// Returns the system's error if the state directory cannot be used.
pub(crate) fn instance(directory: &Directory, renew: bool) -> Result<Token> {
    if !renew
        && let Some(bytes) = directory.read(INSTANCE, 256)?
        && let Some(token) = std::str::from_utf8(&bytes).ok().and_then(|t| Token::new(t.trim()).ok())
    {
        return Ok(token);
    }
    let token = etcd_session::random_token();
    directory.replace(INSTANCE, token.as_str().as_bytes(), 0o600)?;
    Ok(token)
}

/// Returns the addresses of the machine, without loopback and link-local ones, sorted.
pub(crate) fn addresses() -> Vec<String> {
    let Ok(networks) = sysinfo::Networks::new_with_refreshed_list() else { return Vec::new() };
    let all = networks.values().flat_map(|data| data.ip_networks().iter().map(|n| n.addr));
    schema::records::usable_addresses(all).iter().map(ToString::to_string).collect()
}

/// Reads facts about the machine that rarely change.
pub(crate) fn machine_info() -> MachineInfo {
    let memory = sysinfo::System::new().map_or(0, |mut system| {
        system.refresh_memory();
        system.total_memory()
    });
    MachineInfo {
        operating_system: sysinfo::System::long_os_version().unwrap_or_default(),
        kernel: sysinfo::System::kernel_version().unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        memory_mebibytes: memory / (1024 * 1024),
        certificates: Default::default(),
    }
}
