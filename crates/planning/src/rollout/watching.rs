//! What a host that waits in a rollout watches, and which changes lead it to read everything again. A release
//! changes what all the first hosts of a queue watch, and lets one of them start.

use super::limits::{LimitView, QueuedHost};
use super::reads::{first_reads, reads_of_limit};
use super::rules::Rules;
use super::view::{ClaimNeed, RolloutView};
use schema::keys::{Key, Prefix};
use schema::limit::{Limit, Place};
use schema::names::HostName;
use schema::reads::Read;
use schema::why_not::{LimitDetail, WhyNot};
use std::collections::BTreeSet;

impl RolloutView {
    /// True if the host has a ticket of the limit that holds it.
    pub fn is_queued(&self) -> bool {
        self.waits_for().is_some_and(|view| view.is_queued)
    }

    /// Returns the first limit that holds the host.
    pub(super) fn waits_for(&self) -> Option<&LimitView> {
        if self.is_before_limits() {
            return None;
        }
        self.limits.iter().find(|view| view.holds(self.host()))
    }

    /// Returns why the host takes a ticket though it may start: few numbers of a limit are free, and the host has no
    /// ticket yet. It does not know who else has just none.
    pub(crate) fn queues_first(&self, need: ClaimNeed) -> Option<WhyNot> {
        if need != ClaimNeed::Take {
            return None;
        }
        let view = self.limit_to_queue_for()?;
        Some(view.held(LimitDetail::Queue { ahead: 0 }))
    }

    fn limit_to_queue_for(&self) -> Option<&LimitView> {
        if self.is_before_limits() || self.limits.iter().any(|view| view.is_queued) {
            return None;
        }
        self.limits.iter().find(|view| view.is_contended(self.host()))
    }

    /// Returns what was read for this view, so that all of it can be read again at once.
    pub fn reads(&self) -> Vec<Read> {
        let QueuedHost { host, .. } = &self.own;
        let limits = self.limits.iter().map(|view| view.limit.clone());
        let mut reads = first_reads(host, self.order);
        reads.extend(limits.flat_map(|limit| reads_of_limit(&self.own, self.order, limit)));
        reads
    }

    /// Returns the ranges whose changes the host must know to try again: freezes, its rollout, and of the
    /// first limit that holds the host either the claims and the tickets before its own, or one ticket.
    pub fn ranges(&self) -> Vec<Prefix> {
        let limit = self.waits_for().or_else(|| self.limit_to_queue_for());
        let is_far_back = limit.is_some_and(LimitView::is_far_back);
        self.ranges_with(limit.map(|view| (view, view.nearest())), is_far_back)
    }

    /// Returns the ranges that a host far back in a queue has to follow when the ticket that it watches is gone; none for
    /// others. Its turn comes soon then, so it begins to follow them before it reads what else has changed.
    pub fn next_ranges(&self) -> Vec<Prefix> {
        let limit = self.waits_for().filter(|view| view.is_queued && view.is_far_back());
        limit.map_or_else(Vec::new, |view| self.ranges_with(Some((view, &view.nearest()[1..])), false))
    }

    fn ranges_with(
        &self,
        limit: Option<(&LimitView, &[(Place, HostName)])>,
        is_far_back: bool,
    ) -> Vec<Prefix> {
        let order = self.order;
        let mut ranges = vec![Prefix::Freezes];
        // Most of what happens in the rollout does not let these hosts start.
        if self.is_before_limits() {
            ranges.extend([Prefix::RecordOf(order), Prefix::OpenedOf(order)]);
        } else if self.rules == Rules::NoRecord {
            ranges.push(Prefix::RecordOf(order));
        } else if limit.is_some_and(|(view, _)| !view.is_queued || is_far_back) {
            ranges.extend([Prefix::RecordOf(order), Prefix::HaltOf(order)]);
            // It goes on when one of them is healed, unless another host has halted the rollout.
            if self.is_over_budget() {
                ranges.push(Prefix::FailedOf(order));
            }
        } else if self.rules != Rules::None {
            ranges.push(Prefix::Rollout(order));
        }
        // Who comes first is read together with the write of the ticket.
        let Some((view, ahead)) = limit.filter(|(view, _)| view.is_queued) else { return ranges };
        if !is_far_back {
            ranges.push(Prefix::ClaimsOf(view.limit.clone()));
        }
        // Usually the first one leaves first. If it does not use its turn, the others pass over it.
        let is_watched = |n: usize| !is_far_back || n == 0 || n + 1 == ahead.len();
        let watched = ahead.iter().enumerate().filter(|(n, _)| is_watched(*n));
        ranges.extend(watched.map(|(_, (place, _))| Prefix::TicketAt(order, view.limit.clone(), *place)));
        ranges
    }
}

/// What a host that waits for a limit knows of it from a view and from the changes since then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedQueue {
    limit: Limit,
    max: u32,
    /// The numbers that others hold.
    taken: BTreeSet<u32>,
    /// The watched tickets before the own one.
    ahead: BTreeSet<String>,
}

impl WatchedQueue {
    /// Returns what a host with this view knows; `None` if it does not wait for a limit as one of the first.
    pub fn of(view: &RolloutView) -> Option<Self> {
        let limit = view.waits_for().filter(|limit| limit.is_queued && !limit.is_far_back())?;
        let LimitView { limit, max, holders, ahead, .. } = limit;
        let others = holders.iter().filter(|(_, holder)| holder.as_ref() != Some(view.host()));
        let ticket = |(place, host)| Key::Ticket(view.order, limit.clone(), place, host).to_string();
        Some(Self {
            limit: limit.clone(),
            max: *max,
            taken: others.map(|(number, _)| *number).collect(),
            ahead: ahead.iter().cloned().map(ticket).collect(),
        })
    }

    /// Takes over a change of a key, which `exists` from then on or does not. Returns true if the host has to read
    /// everything again: its turn may have come, or the key is about something else.
    pub fn take(&mut self, key: &str, exists: bool) -> bool {
        match Key::parse(key) {
            Ok(Key::Claim(limit, number)) if limit == self.limit => {
                if exists {
                    self.taken.insert(number);
                } else {
                    self.taken.remove(&number);
                }
            }
            Ok(Key::Ticket(..)) => {
                if !exists {
                    self.ahead.remove(key);
                }
            }
            _ => return true,
        }
        self.may_have_come()
    }

    /// True if there is a number for the host after those that come first.
    fn may_have_come(&self) -> bool {
        if self.taken.range(self.max..).next().is_some() {
            return false;
        }
        let free = (self.max as usize).saturating_sub(self.taken.len());
        free > self.ahead.len() || LimitView::is_roomy(free)
    }
}
