//! A limit per network of clients, for a server that more than this machine can reach: whoever forges the
//! address of a victim gets it no more packets than this.

use std::net::IpAddr;
use std::time::Instant;

/// Answers in a second to one network, an IPv4 /24 or an IPv6 /56,
const PER_SECOND: f32 = 1_000.0;
/// and so many at once.
const BURST: f32 = 2_000.0;
/// Networks share places when there are more.
const PLACES: usize = 4096;

pub(super) struct Limit {
    places: Vec<(f32, Instant)>,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self { places: vec![(BURST, Instant::now()); PLACES] }
    }

    pub(super) fn allows(&mut self, client: IpAddr) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_is_held_and_others_are_not() {
        let mut limit = Limit::new();
        let flood: IpAddr = "10.0.0.1".parse().unwrap();
        let allowed = (0..10_000).filter(|_| limit.allows(flood)).count();
        assert!((2_000..4_000).contains(&allowed), "{allowed}");
        assert!(limit.allows("10.0.1.1".parse().unwrap()));
        assert!(limit.allows("fd00::1".parse().unwrap()));
    }
}
