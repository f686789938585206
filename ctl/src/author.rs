//! Who runs the command, for events.

use crate::exit::Failure;
use anyhow::anyhow;
use schema::names::HostName;

/// Who runs the command. Nobody verifies it.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    /// Name of the person or job; in a step of a host, the name of the host if no other is given.
    pub(crate) name: String,
    /// The host whose step runs the command.
    pub(crate) host: Option<HostName>,
}

impl Author {
    /// Returns who acts: as the option says, else as the environment does.
    pub(crate) fn resolve(
        given: Option<&str>,
        get: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let given = given.map(str::to_owned).or_else(|| get("ORCHESTRATE_BY"));
        if let Some(name) =
            given.as_deref().filter(|name| name.trim().is_empty() || name.contains(char::is_control))
        {
            let shown = schema::names::quoted(name);
            return Err(Failure::usage(anyhow!(
                "--by is {shown}: it must be a name without control characters"
            )));
        }
        let host = get("ORCHESTRATE_STEP_HOST").and_then(|host| HostName::new(host).ok());
        let name = given
            .or_else(|| host.as_ref().map(ToString::to_string))
            .or_else(|| ["SUDO_USER", "LOGNAME", "USER"].into_iter().find_map(get))
            .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
        Ok(Self { name, host })
    }
}
