//! One limit that counts a host: who holds its numbers, and who waits for one.

use super::obstacle::Obstacle;
use schema::codec;
use schema::digest::Digest;
use schema::keys::{Key, Prefix};
use schema::limit::{Limit, Place};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::LimitClaim;
use schema::snapshot::KeySnapshot;
use schema::time::BootMillis;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which a host that does not use its turn is passed over.
pub(super) const PASSED_OVER_AFTER: Duration = Duration::from_secs(60);

/// Returns the place of a host among those that wait for a version.
pub fn place(host: &HostName, version: &Version) -> Place {
    Place((Digest::default().text(version.as_str()).text(host.as_str()).finish() >> 32) as u32)
}

/// One limit that counts a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitView {
    /// The limit.
    pub limit: Limit,
    /// How many hosts may be unavailable.
    pub max: u32,
    /// True if a host that gave up goes on holding its claim.
    pub keep_failed: bool,
    /// The holders of claims, by number. `None` if the claim cannot be read; it counts nevertheless.
    pub holders: BTreeMap<u32, Option<HostName>>,
    /// The tickets before the place of this host, in order.
    pub ahead: Vec<(Place, HostName)>,
    /// True if the host has a ticket.
    pub is_queued: bool,
    /// Since when holders and the first ticket have been the same.
    pub unchanged_since: BootMillis,
}

impl LimitView {
    /// Returns the numbers that a host may take, the lowest first. None is free while somebody else
    /// holds a number that the limit does not have any more.
    pub(super) fn free(&self, host: &HostName) -> Vec<u32> {
        let is_other = |holder: &Option<HostName>| holder.as_ref() != Some(host);
        if self.holders.range(self.max..).any(|(_, holder)| is_other(holder)) {
            return Vec::new();
        }
        (0..self.max).filter(|number| !self.holders.get(number).is_some_and(is_other)).collect()
    }

    /// Returns how many hosts are passed over because they do not use their turn, one after the other.
    pub(super) fn passed(&self, now: BootMillis) -> usize {
        let passed = now.since(self.unchanged_since).as_secs() / PASSED_OVER_AFTER.as_secs();
        usize::try_from(passed).unwrap_or(usize::MAX)
    }

    /// Returns the number that the host takes: the one that it has, unless it is above the limit.
    pub(super) fn number(
        &self,
        (place, host): &(Place, HostName),
        held: Option<u32>,
        now: BootMillis,
    ) -> Result<u32, Obstacle> {
        let free = self.free(host);
        if let Some(held) = held.filter(|held| free.contains(held)) {
            return Ok(held);
        }
        // Its own claim above the limit ends soon.
        if free.is_empty() || held.is_some() {
            let others =
                || self.holders.values().filter(|holder| held.is_some() || holder.as_ref() != Some(host));
            return Err(Obstacle::Full {
                limit: self.limit.clone(),
                max: self.max,
                used: others().count(),
                holders: others().flatten().cloned().collect(),
            });
        }
        let ahead = self.ahead.len().saturating_sub(self.passed(now));
        if self.ahead.is_empty() {
            // Nobody waits, so nothing orders the hosts that come now: they spread over the free numbers.
            let spread = Digest::default().text(host.as_str()).number(u64::from(place.0)).finish();
            return Ok(free[(spread % free.len() as u64) as usize]);
        }
        free.get(ahead).copied().ok_or(Obstacle::NotItsTurn { limit: self.limit.clone(), ahead })
    }
}

pub(super) fn limit_view(
    (limit, max, keep_failed): (Limit, u32, bool),
    (order, own): (InstructionOrder, &(Place, HostName)),
    found: &KeySnapshot,
    now: BootMillis,
) -> LimitView {
    let mut holders = BTreeMap::new();
    let mut ahead = Vec::new();
    let mut is_queued = false;
    let claims = found.in_range(&Prefix::ClaimsOf(limit.clone()));
    for (key, entry) in claims.chain(found.in_range(&Prefix::Queue(order, limit.clone()))) {
        match Key::parse(key) {
            Ok(Key::Claim(_, number)) => {
                let claim = codec::read::<LimitClaim>(&entry.value).ok();
                holders.insert(number, claim.map(|claim| claim.host));
            }
            Ok(Key::Ticket(_, _, _, host)) if host == own.1 => is_queued = true,
            Ok(Key::Ticket(_, _, place, host)) if (place, &host) < (own.0, &own.1) => {
                ahead.push((place, host));
            }
            _ => {}
        }
    }
    LimitView { limit, max, keep_failed, holders, ahead, is_queued, unchanged_since: now }
}
