//! One limit that counts a host: who holds its numbers, and who waits for one.

use schema::digest::Digest;
use schema::keys::{self, Key, Prefix};
use schema::limit::{HEADS, Limit, Place};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::ResolvedLimit;
use schema::snapshot::KeySnapshot;
use schema::time::BootMillis;
use schema::why_not::{LimitDetail, WhyNot};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after which a host that does not use its turn is passed over.
pub(super) const PASSED_OVER_AFTER: Duration = Duration::from_secs(60);

/// While more numbers of a limit than this are free, hosts do not wait for each other: each tries one of them.
const ROOM: usize = 8;

/// Returns the place of a host among those that wait for a version.
pub fn place(host: &HostName, version: &Version) -> Place {
    Place((Digest::default().text(version.as_str()).text(host.as_str()).finish() >> 32) as u32)
}

/// A host with its place in the queues of the limits that count it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedHost {
    pub(super) place: Place,
    pub(super) host: HostName,
}

/// One limit that counts a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitView {
    pub limit: Limit,
    /// How many hosts may be unavailable.
    pub max: u32,
    /// True if a host that gave up goes on holding its claim.
    pub keep_failed: bool,
    /// The holders of claims, by number. `None` if the claim cannot be read; it still counts.
    pub holders: BTreeMap<u32, Option<HostName>>,
    /// The tickets before the place of this host, in order: all of them, or the last [`HEADS`].
    pub ahead: Vec<(Place, HostName)>,
    /// True if the host has a ticket.
    pub is_queued: bool,
    /// Since when holders and the first ticket have been the same; for a host far back, all tickets.
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

    /// Returns how many hosts of the queue watch the claims: no more than one in addition to those that can start.
    fn heads(&self) -> usize {
        HEADS.min(self.max.saturating_add(1)) as usize
    }

    /// True if so many hosts come first that hardly any change lets this one start. It is not always known how many.
    pub(super) fn is_far_back(&self) -> bool {
        self.ahead.len() >= self.heads()
    }

    /// Returns the tickets just before the place of the host: all of them if it is one of the first. When the first of
    /// them is gone, it is one of the first.
    pub(super) fn nearest(&self) -> &[(Place, HostName)] {
        &self.ahead[self.ahead.len().saturating_sub(self.heads())..]
    }

    /// True if so many of these numbers are free that hosts do not wait for each other.
    pub(super) fn is_roomy(free: usize) -> bool {
        free > ROOM
    }

    /// True if the limit holds the host: too few numbers are free for those that come first and for it. A host that
    /// has a number keeps it, unless the limit does not have that number any more.
    pub(super) fn holds(&self, host: &HostName) -> bool {
        let free = self.free(host);
        let mut own = self.holders.iter().filter(|(_, holder)| holder.as_ref() == Some(host));
        match own.next_back() {
            Some((number, _)) => !free.contains(number),
            None => !Self::is_roomy(free.len()) && (self.is_far_back() || free.len() <= self.ahead.len()),
        }
    }

    /// True if few numbers are free, so that hosts wait for their turn.
    pub(super) fn is_contended(&self, host: &HostName) -> bool {
        !Self::is_roomy(self.free(host).len())
    }

    /// Returns how many hosts are passed over because they do not use their turn, one after the other.
    pub(super) fn passed(&self, now: BootMillis) -> usize {
        let passed = now.since(self.unchanged_since).as_secs() / PASSED_OVER_AFTER.as_secs();
        usize::try_from(passed).unwrap_or(usize::MAX)
    }

    /// True if none of the first hosts has used its turn for so long that all of them would be passed over.
    fn is_stuck(&self, now: BootMillis) -> bool {
        self.is_far_back() && self.passed(now) > HEADS as usize
    }

    /// Returns the limit as what keeps a host from starting.
    pub(super) fn held(&self, detail: LimitDetail) -> WhyNot {
        WhyNot::Limit { limit: self.limit.clone(), detail }
    }

    /// Returns the number that the host takes: the one that it has, unless it is above the limit.
    pub(super) fn number(&self, own: &QueuedHost, held: Option<u32>, now: BootMillis) -> Result<u32, WhyNot> {
        let QueuedHost { place, host } = own;
        let free = self.free(host);
        if let Some(held) = held.filter(|held| free.contains(held)) {
            return Ok(held);
        }
        // Its own claim above the limit is moved down, or ends.
        if free.is_empty() || held.is_some() {
            let others =
                || self.holders.values().filter(|holder| held.is_some() || holder.as_ref() != Some(host));
            return Err(self.held(LimitDetail::Full {
                max: self.max,
                used: others().count(),
                holders: others().flatten().cloned().collect(),
            }));
        }
        let passed = if self.is_far_back() { 0 } else { self.passed(now) };
        let ahead = self.ahead.len().saturating_sub(passed);
        if self.ahead.is_empty() || Self::is_roomy(free.len()) || self.is_stuck(now) {
            // Nothing orders the hosts that come now: they spread over the free numbers.
            let spread = Digest::default().text(host.as_str()).number(u64::from(place.0)).finish();
            return Ok(free[(spread % free.len() as u64) as usize]);
        }
        let number = if self.is_far_back() { None } else { free.get(ahead).copied() };
        number.ok_or_else(|| self.held(LimitDetail::Queue { ahead }))
    }
}

/// Reads a limit that counts a host. `resolved` is what the record says of it.
pub(super) fn limit_view(
    limit: Limit,
    resolved: &ResolvedLimit,
    order: InstructionOrder,
    own: &QueuedHost,
    found: &KeySnapshot,
    now: BootMillis,
) -> LimitView {
    let (max, keep_failed) = (resolved.max_of(&limit.value), resolved.keeps_failed(&limit.value));
    let mut holders = BTreeMap::new();
    let mut ahead = BTreeSet::new();
    let mut is_queued = false;
    let claims = found.in_range(&Prefix::ClaimsOf(limit.clone()));
    for (key, entry) in claims.chain(found.in_range(&Prefix::Queue(order, limit.clone()))) {
        match Key::parse(key) {
            Ok(Key::Claim(_, number)) => {
                let claim = keys::Claim::read(&entry.value).ok();
                holders.insert(number, claim.map(|claim| claim.host));
            }
            Ok(Key::Ticket(_, _, _, host)) if host == own.host => is_queued = true,
            Ok(Key::Ticket(_, _, place, host)) if (place, &own.host) < (own.place, &host) => {
                ahead.insert((place, Reverse(host)));
            }
            _ => {}
        }
    }
    let behind_others = ahead.len().saturating_sub(HEADS as usize);
    let ahead = ahead.into_iter().skip(behind_others).map(|(place, Reverse(host))| (place, host)).collect();
    LimitView { limit, max, keep_failed, holders, ahead, is_queued, unchanged_since: now }
}
