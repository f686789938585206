//! The host with the mark in a forecast: when it looks at the fleet, and what it does then.

use super::fleet::passed;
use super::run::{Event, Run, Soaking};
use super::types::ForecastInput;
use crate::rollout::NEWS_DELAY;
use crate::rollout::end::READ_PAUSE;
use crate::rollout::opening::Members;
use crate::rollout::results::HostResult;
use schema::keys;
use schema::records::Soak;
use std::time::Duration;

/// Time from the end of a lease until the store has noticed it: etcd looks every half second.
const LEASE_NOTICED: Duration = Duration::from_millis(250);

impl<'a> Run<'a> {
    /// Something has changed that the host with the mark watches.
    pub(super) fn tell(&mut self) {
        if !std::mem::replace(&mut self.looks_again, true) {
            let earliest = self.looked_at.map_or(Duration::ZERO, |at| at.saturating_add(READ_PAUSE));
            let at = earliest.max(self.now.saturating_add(NEWS_DELAY));
            self.after(at.saturating_sub(self.now), Event::Looks);
        }
    }

    /// The host with the mark observes the hosts up to the open stage, or opens the next one, or notes the end, if all
    /// of them are through.
    pub(super) fn look(&mut self) {
        (self.looked_at, self.looks_again) = (Some(self.now), false);
        let is_busy = self.pending[..=self.open as usize].iter().any(|pending| *pending > 0);
        if is_busy || self.halt.is_some() || self.soaking == Soaking::Timed || self.ends.is_some() {
            return;
        }
        if self.open == self.rest {
            let works = self.fleet.hosts.iter().any(|host| host.result == HostResult::Proven);
            self.ends = works.then_some(self.now);
            return;
        }
        let members = self.members();
        if !members.is_through(self.open) {
            return;
        }
        let soak = self.input.record.stages[self.open as usize].rule.soak;
        match soak {
            Some(soak) if !members.is_empty(self.open) && self.soaking != Soaking::Over => self.soak(soak.0),
            _ => self.open_next(),
        }
    }

    /// Begins a soak, or starts its timer. One that had begun when the forecast did goes on.
    fn soak(&mut self, length: Duration) {
        let ForecastInput { order, found, now, .. } = *self.input;
        let begun = found.value_of(keys::Soak(order, self.open)).filter(|soak| soak.timed);
        match (begun, self.soaking) {
            (None, Soaking::No) => {
                self.soaking = Soaking::Begun;
                self.tell();
            }
            (begun, _) => {
                let since = |soak: Soak| passed(soak.at, now).saturating_add(self.now);
                let elapsed = begun.map_or(Duration::ZERO, since);
                self.soaking = Soaking::Timed;
                let left = length.saturating_sub(elapsed);
                self.after(left.saturating_add(LEASE_NOTICED), Event::SoakEnds);
            }
        }
    }

    fn open_next(&mut self) {
        let to = self.members().next_stage(self.open, self.rest);
        let stages = self.open + 1..=to;
        (self.open, self.soaking) = (to, Soaking::No);
        self.opened.extend(stages.clone().map(|stage| (stage, self.now)));
        self.enter_stages(stages);
        self.tell();
    }

    pub(super) fn members(&self) -> Members<'a> {
        let results = self.fleet.hosts.iter().map(|host| (host.name.clone(), host.result)).collect();
        let ForecastInput { order, record, found, .. } = *self.input;
        Members::with_results(order, record, results, found)
    }
}
