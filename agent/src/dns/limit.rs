//! Limits for each network of clients. For UDP, they apply to a server that other machines can
//! reach: an attacker who forges the address of a victim can send the victim no more packets than
//! the limit. For TCP, they apply to every server, so that one client leaves connections for
//! others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Maximum number of open connections; further ones wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Maximum number of open connections of one other machine: an IPv4 address or an IPv6 /64.
const CONNECTIONS_OF_OTHERS_MAX: usize = 16;
/// Maximum number of open connections of one loopback address: half of all, because all programs on
/// this machine, possibly including a forwarder for many clients, use one or a few addresses.
const CONNECTIONS_OF_OURS_MAX: usize = CONNECTIONS_MAX / 2;

/// Answers per second to one network, an IPv4 /24 or an IPv6 /56.
const PER_SECOND: f32 = 1_000.0;
/// Maximum number of answers to one network at once.
const BURST: f32 = 2_000.0;
/// Number of counters. Networks with the same hash share one.
const PLACES: usize = 4096;

pub(super) struct Limit {
    places: Vec<(f32, Instant)>,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self { places: vec![(BURST, Instant::now()); PLACES] }
    }

    pub(super) fn permits(&mut self, client: IpAddr) -> bool {
        let network = match client {
            IpAddr::V4(ip) => u64::from(u32::from(ip) >> 8),
            IpAddr::V6(ip) => (u128::from(ip) >> 72) as u64,
        };
        // Fibonacci hashing.
        let place = (network.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % PLACES;
        let now = Instant::now();
        let (left, last) = &mut self.places[place];
        *left = (*left + now.duration_since(*last).as_secs_f32() * PER_SECOND).min(BURST);
        *last = now;
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}

/// The number of open connections of each client.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One open connection of a client; it counts until this is dropped.
pub(super) struct Permit {
    client: IpAddr,
    all: Connections,
}

impl Connections {
    /// Returns a permit for a connection; `None` if the client has as many connections as it may
    /// have.
    pub(super) fn acquire(&self, client: IpAddr) -> Option<Permit> {
        let client = client.to_canonical();
        let most = if client.is_loopback() { CONNECTIONS_OF_OURS_MAX } else { CONNECTIONS_OF_OTHERS_MAX };
        let client = match client {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into()
            }
            address => address,
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(client).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Permit { client, all: self.clone() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(&self.client) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_gets_its_part_of_the_connections() {
        let connections = Connections::default();
        let enter = |client: &str| connections.acquire(client.parse().unwrap());
        for (client, same, other, most) in [
            ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", 16),
            ("fd00::1", "fd00::2", "fd00:0:0:1::1", 16),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2", 128),
            ("::1", "::1", "127.0.0.1", 128),
        ] {
            let mut held: Vec<Permit> = (0..300).filter_map(|_| enter(client)).collect();
            assert_eq!(held.len(), most, "{client}");
            assert!(enter(same).is_none() && enter(other).is_some(), "{client}");
            held.pop();
            assert!(enter(same).is_some(), "{client}");
        }
        assert!(connections.0.lock().unwrap().is_empty());
    }

    #[test]
    fn one_network_is_held_and_others_are_not() {
        let mut limit = Limit::new();
        let flood: IpAddr = "10.0.0.1".parse().unwrap();
        let allowed = (0..10_000).filter(|_| limit.permits(flood)).count();
        assert!((2_000..4_000).contains(&allowed), "{allowed}");
        assert!(limit.permits("10.0.1.1".parse().unwrap()));
        assert!(limit.permits("fd00::1".parse().unwrap()));
    }
}
