//! How many hosts of a rollout were proven, over time: a drawing that needs no script.

use askama::Template;
use planning::calendar::rfc3339;
use schema::keys::{self, Prefix};
use schema::order::InstructionOrder;
use schema::records::ProgressState;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;

/// The size of the drawing.
const WIDTH: i64 = 600;
const HEIGHT: i64 = 100;

/// The proofs of a rollout over time.
#[derive(Template)]
#[template(path = "chart.html")]
pub(super) struct Chart {
    /// The line, as SVG has it.
    points: String,
    /// When the rollout was halted, as a place in the drawing.
    halted: Option<i64>,
    proven: usize,
    from: String,
    to: String,
}

impl Chart {
    fn caption(&self) -> String {
        if self.proven == 1 {
            "1 host was proven".into()
        } else {
            format!("{} hosts were proven", self.proven)
        }
    }

    /// Returns the drawing; `None` before the first proof.
    pub(super) fn new(
        order: InstructionOrder,
        began: EpochSeconds,
        hosts: usize,
        found: &KeySnapshot,
        now: EpochSeconds,
    ) -> Option<Self> {
        let progress = found.in_range(&Prefix::ProgressOf(order));
        let read = progress.filter_map(|(_, entry)| keys::Progress::read(&entry.value).ok());
        let mut proofs: Vec<i64> = read
            .filter(|progress| progress.state == ProgressState::Proven)
            // Hosts write these by their own clocks, and anybody may write anything.
            .map(|progress| progress.at.0.clamp(began.0, now.0.max(began.0)))
            .collect();
        proofs.sort_unstable();
        let ended = found.value_of(keys::Ended(order));
        let halt = found.value_of(keys::Halt(order));
        let end = ended.map_or(now, |ended| ended.at).0.min(now.0).max(*proofs.last()?);
        let end = end.max(began.0.saturating_add(1));
        let x = |at: i64| (at.clamp(began.0, end) - began.0).saturating_mul(WIDTH) / (end - began.0);
        // Hosts that had the version before needed no proof.
        let all = i64::try_from(hosts.max(proofs.len())).ok()?;
        let y = |count: i64| HEIGHT - count * HEIGHT / all;
        let mut points = vec![format!("0,{HEIGHT}")];
        for (count, at) in (0..).zip(&proofs) {
            points.push(format!("{},{}", x(*at), y(count)));
            points.push(format!("{},{}", x(*at), y(count + 1)));
        }
        // Many hosts share a place of the drawing.
        points.dedup();
        points.push(format!("{WIDTH},{}", y(i64::try_from(proofs.len()).ok()?)));
        Some(Self {
            points: points.join(" "),
            halted: halt.map(|halt| x(halt.at.0)),
            proven: proofs.len(),
            from: rfc3339(began)?,
            to: rfc3339(EpochSeconds(end))?,
        })
    }
}
