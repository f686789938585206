//! Which incidents are open, and what has to be said when. A condition opens an incident after it held for a while, and
//! closes it after it has been gone for a while. An incident that opens and closes again and again is said once an hour.

use super::incident::{Incident, IncidentId, IncidentKind};
use super::situation::{Situation, counted};
use schema::names::HostName;
use schema::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Openings within this time count as flapping, in seconds; and so often it is said.
const FLAPPING_SECONDS: i64 = 60 * 60;
/// Number of openings that are flapping.
const FLAPPING_OPENINGS: usize = 3;
/// Hosts that are lost within this time are lost together, in seconds.
const TOGETHER_SECONDS: i64 = 60;
/// So many hosts that are lost together are many, in any fleet.
const MANY_HOSTS: usize = 20;
/// A fleet of which more than this part is lost together has lost many.
const MANY_PERCENT: usize = 5;

/// How long conditions must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncidentTimes {
    /// How long a condition holds before its incident opens.
    pub hold_for: Duration,
    /// How long it has been gone before its incident closes.
    pub clear_for: Duration,
}

impl Default for IncidentTimes {
    fn default() -> Self {
        Self { hold_for: Duration::from_secs(2 * 60), clear_for: Duration::from_secs(10 * 60) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The incident opened.
    Opened,
    /// The incident closed.
    Resolved,
    /// The incident opens and closes again and again. Nothing more is said for an hour.
    Flapping,
}

impl NoticeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Resolved => "resolved",
            Self::Flapping => "flapping",
        }
    }
}

/// Something to be said about an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub notice: NoticeKind,
    /// When.
    pub at: EpochSeconds,
    /// Since when its condition holds, or held.
    pub since: EpochSeconds,
    #[serde(flatten)]
    pub incident: Incident,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenIncident {
    /// Since when its condition holds.
    pub since: EpochSeconds,
    /// True if it opens and closes again and again.
    pub flapping: bool,
    #[serde(flatten)]
    pub incident: Incident,
}

/// A condition that holds, or held not long ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Tracked {
    incident: Incident,
    /// Since when its condition holds; `None` if it does not, and is not open.
    since: Option<EpochSeconds>,
    /// Since when its condition has been gone.
    gone_since: Option<EpochSeconds>,
    is_open: bool,
    /// When it opened within the last hour.
    openings: Vec<EpochSeconds>,
    /// When it was last said that it flaps. Until that is over, nothing else is said.
    flapping_at: Option<EpochSeconds>,
}

impl Tracked {
    fn notice(&self, notice: NoticeKind, now: EpochSeconds) -> Notice {
        Notice { notice, at: now, since: self.since.unwrap_or(now), incident: self.incident.clone() }
    }

    /// Notes that the condition holds.
    fn hold(&mut self, now: EpochSeconds, times: &IncidentTimes) -> Option<Notice> {
        self.gone_since = None;
        let since = *self.since.get_or_insert(now);
        if self.is_open || !has_passed(since, now, times.hold_for) {
            return None;
        }
        self.is_open = true;
        self.openings.push(now);
        if self.openings.len() < FLAPPING_OPENINGS && self.flapping_at.is_none() {
            return Some(self.notice(NoticeKind::Opened, now));
        }
        if self.flapping_at.is_some_and(|at| now.0.saturating_sub(at.0) < FLAPPING_SECONDS) {
            return None;
        }
        self.flapping_at = Some(now);
        Some(self.notice(NoticeKind::Flapping, now))
    }

    /// Notes that the condition does not hold.
    fn leave(&mut self, now: EpochSeconds, times: &IncidentTimes) -> Option<Notice> {
        if self.is_open {
            let gone_since = *self.gone_since.get_or_insert(now);
            if !has_passed(gone_since, now, times.clear_for) {
                return None;
            }
            self.is_open = false;
            let resolved = self.notice(NoticeKind::Resolved, now);
            (self.since, self.gone_since) = (None, None);
            return self.flapping_at.is_none().then_some(resolved);
        }
        self.since = None;
        let is_calm = self.flapping_at.is_some() && self.openings.is_empty();
        if is_calm {
            self.flapping_at = None;
            return Some(self.notice(NoticeKind::Resolved, now));
        }
        None
    }

    /// Forgets what is over. Nothing was in the future: if it seems so, the clock was ahead.
    fn bring_up_to_date(&mut self, now: EpochSeconds) {
        let times = [&mut self.since, &mut self.gone_since, &mut self.flapping_at];
        times.into_iter().flatten().chain(&mut self.openings).for_each(|at| *at = now.min(*at));
        self.openings.retain(|at| now.0.saturating_sub(at.0) < FLAPPING_SECONDS);
    }

    /// True if nothing depends on it any more.
    fn is_over(&self) -> bool {
        !self.is_open && self.since.is_none() && self.openings.is_empty() && self.flapping_at.is_none()
    }
}

/// True if this time has passed.
fn has_passed(since: EpochSeconds, now: EpochSeconds, time: Duration) -> bool {
    u64::try_from(now.0.saturating_sub(since.0)).is_ok_and(|passed| passed >= time.as_secs())
}

/// The incidents of a fleet. It can be kept in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IncidentBook {
    /// The lineage that was seen last.
    lineage: String,
    incidents: BTreeMap<IncidentId, Tracked>,
    /// When each lost host was first seen so; `None` if it may have been lost before that, because nobody looked.
    lost_since: BTreeMap<HostName, Option<EpochSeconds>>,
    /// Whether the last look showed the fleet. What is read from a file has not looked yet.
    #[serde(skip)]
    is_looking: bool,
}

impl IncidentBook {
    /// Takes what is wrong with the fleet; `None` while what is known is old. Then only that is said, and nothing is
    /// resolved. Returns what has to be said.
    pub fn advance(
        &mut self,
        situation: Option<Situation>,
        now: EpochSeconds,
        times: &IncidentTimes,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        let away = situation.is_none();
        let holding = match situation {
            Some(situation) => self.conditions(situation, now),
            None => {
                self.is_looking = false;
                vec![self.store_away()]
            }
        };
        let mut holding: BTreeMap<IncidentId, Incident> =
            holding.into_iter().map(|incident| (incident.incident_id.clone(), incident)).collect();
        for (id, tracked) in &mut self.incidents {
            tracked.bring_up_to_date(now);
            match holding.remove(id) {
                Some(incident) => {
                    tracked.incident = incident;
                    notices.extend(tracked.hold(now, times));
                }
                // What is not known neither goes on nor ends.
                None if away => {
                    tracked.gone_since = None;
                    if !tracked.is_open {
                        tracked.since = None;
                    }
                }
                None => notices.extend(tracked.leave(now, times)),
            }
        }
        for (id, incident) in holding {
            let (since, gone_since, flapping_at) = (None, None, None);
            let mut tracked =
                Tracked { incident, since, gone_since, is_open: false, openings: Vec::new(), flapping_at };
            notices.extend(tracked.hold(now, times));
            self.incidents.insert(id, tracked);
        }
        self.incidents.retain(|_, tracked| !tracked.is_over());
        notices
    }

    /// Returns the lineage of the store that was seen last; empty before.
    pub fn lineage(&self) -> &str {
        &self.lineage
    }

    /// Returns the open incidents, the most urgent first.
    pub fn open(&self) -> Vec<OpenIncident> {
        let open = self.incidents.values().filter(|tracked| tracked.is_open);
        let mut open: Vec<OpenIncident> = open
            .map(|tracked| OpenIncident {
                since: tracked.since.unwrap_or_default(),
                flapping: tracked.flapping_at.is_some(),
                incident: tracked.incident.clone(),
            })
            .collect();
        open.sort_by_cached_key(|open| {
            let Incident { severity, kind, incident_id, .. } = &open.incident;
            (std::cmp::Reverse(*severity), open.since, *kind, incident_id.clone())
        });
        open
    }

    /// Returns all conditions of a situation.
    fn conditions(&mut self, situation: Situation, now: EpochSeconds) -> Vec<Incident> {
        let Situation { lineage, host_count, lost, mut incidents } = situation;
        self.lineage = lineage;
        self.lost_since.retain(|host, _| lost.contains(host));
        self.lost_since.values_mut().flatten().for_each(|at| *at = now.min(*at));
        let since = std::mem::replace(&mut self.is_looking, true).then_some(now);
        for host in lost {
            self.lost_since.entry(host).or_insert(since);
        }
        let together = self.lost_together();
        let many = MANY_HOSTS.min(host_count * MANY_PERCENT / 100).max(1);
        let (many, others): (Vec<HostName>, Vec<HostName>) = self
            .lost_since
            .keys()
            .cloned()
            .partition(|host| together.len() > many && together.contains(host));
        for (kind, hosts) in [(IncidentKind::ManyLost, many), (IncidentKind::Lost, others)] {
            if !hosts.is_empty() {
                let summary = format!("{} lost", counted(hosts.len()));
                incidents.push(Incident::new(&self.lineage, None, kind, "", summary, hosts));
            }
        }
        incidents
    }

    fn store_away(&self) -> Incident {
        let summary = "the store cannot be read, so that the state of the fleet is not known".to_owned();
        Incident::new(&self.lineage, None, IncidentKind::StoreAway, "", summary, [])
    }

    /// Returns the largest group of hosts that were lost within a minute, of those that still are.
    fn lost_together(&self) -> BTreeSet<HostName> {
        let known = self.lost_since.iter().filter_map(|(host, since)| Some((since.as_ref()?.0, host)));
        let mut known: Vec<(i64, &HostName)> = known.collect();
        known.sort_unstable();
        let group = |first: usize| {
            let end = known[first].0.saturating_add(TOGETHER_SECONDS);
            &known[first..known.partition_point(|(at, _)| *at <= end)]
        };
        let largest = (0..known.len()).map(group).max_by_key(|group| group.len());
        largest.into_iter().flatten().map(|(_, host)| (*host).clone()).collect()
    }
}
