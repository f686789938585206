//! Hosts with addresses of their own on one machine: a bridge, and a network namespace for each host. The store
//! stands behind the bridge, so that a firewall there decides who reaches it.

use crate::process::run;
use std::process::Command;

/// Where the test and the store are.
const OUTSIDE: &str = "10.77.0.254";
const HOSTS: &str = "10.77.0.0/24";

/// The bridge. It is gone with the network of the test ([`crate::process::in_own_network`]).
#[derive(Debug)]
pub struct Network(());

/// The place of a host.
#[derive(Debug, Clone)]
pub struct Place {
    namespace: String,
    /// Its address.
    pub address: String,
}

fn shell(script: &str) {
    let output = run(Command::new("sh").args(["-ec", script]), "");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Network {
    /// Lays the bridge, in a network and with mounts of the test's own. What listens on its loopback is reached from the
    /// bridge at [`Network::endpoint`].
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

    /// A place for a host of this number, from 1.
    pub fn place(&self, number: u8) -> Place {
        let place = Place { namespace: format!("h{number}"), address: format!("10.77.0.{number}") };
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

    /// What hosts call an endpoint on the loopback of the test.
    pub fn endpoint(&self, local: &str) -> String {
        local.replace("127.0.0.1", OUTSIDE)
    }

    /// Hosts reach the store no more: all of them, or the one at a place.
    pub fn cut(&self, place: Option<&Place>) {
        Self::firewall("-I", place, "");
    }

    /// They reach it again.
    pub fn heal(&self, place: Option<&Place>) {
        Self::firewall("-D", place, "");
    }

    /// So great a part of the packets to the store is lost.
    pub fn lose(&self, part: f64) {
        Self::firewall("-I", None, &format!("-m statistic --mode random --probability {part}"));
    }

    /// In both directions.
    fn firewall(change: &str, place: Option<&Place>, what: &str) {
        let hosts = place.map_or(HOSTS, |place| &place.address);
        shell(&format!(
            "iptables {change} INPUT -s {hosts} -d 127.0.0.1 -p tcp {what} -j DROP
             iptables {change} OUTPUT -s 127.0.0.1 -d {hosts} -p tcp {what} -j DROP"
        ));
    }
}

impl Place {
    /// A command that runs there.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }
}
