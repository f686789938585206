//! Hosts with their own addresses on one machine: a bridge, and a network namespace for each host.
//! The store is behind the bridge, so that a firewall rule there decides which hosts reach it.

use crate::process::run;
use std::process::Command;

/// Address of the bridge, at which hosts reach the test and the store.
const OUTSIDE: &str = "10.77.0.254";
const HOSTS: &str = "10.77.0.0/24";

/// The bridge. It disappears with the network of the test ([`crate::process::in_own_network`]).
#[derive(Debug)]
pub struct Network(());

/// The network namespace and the address of a host.
#[derive(Debug, Clone)]
pub struct HostNetwork {
    namespace: String,
    pub address: String,
}

fn shell(script: &str) {
    let output = run(Command::new("sh").args(["-ec", script]), "");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Network {
    /// Creates the bridge; the test must run in its own network and mount namespaces. Servers that
    /// listen on the loopback of the test are reachable from the bridge at [`Network::endpoint`].
    #[allow(clippy::new_without_default, reason = "it changes the machine")]
    pub fn new() -> Self {
        shell(&format!(
            "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns
             ip link add fleet type bridge && ip addr add {OUTSIDE}/24 dev fleet && ip link set fleet up
             echo 1 > /proc/sys/net/ipv4/conf/fleet/route_localnet
             iptables -t nat -A PREROUTING -i fleet -d {OUTSIDE} -p tcp -j DNAT --to-destination 127.0.0.1"
        ));
        Self(())
    }

    /// Creates the namespace of the host with this number; numbers start at 1.
    pub fn place(&self, number: u8) -> HostNetwork {
        let place = HostNetwork { namespace: format!("h{number}"), address: format!("10.77.0.{number}") };
        let (namespace, address) = (&place.namespace, &place.address);
        shell(&format!(
            "ip netns add {namespace}
             ip link add v{number} type veth peer name eth0 netns {namespace}
             ip link set v{number} master fleet up
             ip -n {namespace} addr add {address}/24 dev eth0
             ip -n {namespace} link set eth0 up && ip -n {namespace} link set lo up"
        ));
        place
    }

    /// Returns the address under which hosts reach an endpoint on the loopback of the test.
    pub fn endpoint(&self, local: &str) -> String {
        local.replace("127.0.0.1", OUTSIDE)
    }

    /// Cuts all hosts, or only the one at `place`, off from the store.
    pub fn cut(&self, place: Option<&HostNetwork>) {
        Self::firewall("-I", place, "");
    }

    /// Lets all hosts, or the one at `place`, reach the store again.
    pub fn heal(&self, place: Option<&HostNetwork>) {
        Self::firewall("-D", place, "");
    }

    /// Drops this fraction of the packets between the hosts and the store, in each direction.
    pub fn lose(&self, part: f64) {
        Self::firewall("-I", None, &format!("-m statistic --mode random --probability {part}"));
    }

    /// Ends [`Self::lose`] of this fraction.
    pub fn lose_no_more(&self, part: f64) {
        Self::firewall("-D", None, &format!("-m statistic --mode random --probability {part}"));
    }

    /// Changes the firewall rules for both directions.
    fn firewall(change: &str, place: Option<&HostNetwork>, what: &str) {
        let hosts = place.map_or(HOSTS, |place| &place.address);
        shell(&format!(
            "iptables {change} INPUT -s {hosts} -d 127.0.0.1 -p tcp {what} -j DROP
             iptables {change} OUTPUT -s 127.0.0.1 -d {hosts} -p tcp {what} -j DROP"
        ));
    }
}

impl HostNetwork {
    /// Returns the file of this namespace, for programs that enter it themselves.
    pub fn file(&self) -> std::path::PathBuf {
        std::path::Path::new("/run/netns").join(&self.namespace)
    }

    /// Returns a command that runs in this namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }
}
