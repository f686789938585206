//! The windows of a rollout: when a host may start. It is the one decision that follows the wall clock of the host.

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan, Zoned};
use schema::limit::Place;
use schema::records::{TimeOfDay, Window};
use schema::time::EpochSeconds;
use schema::why_not::WhyNot;

/// Time over which the hosts that wait for a window start, by place.
const SPREAD_SECONDS: u64 = 30;
/// Days in which the next window is looked for. A window that opens weekly can be missing once, in the night in which
/// the clocks change.
const DAYS_AHEAD: i32 = 15;

/// When the next window opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextWindow {
    /// When the host may start.
    pub starts: EpochSeconds,
    /// When the window opens, in its own time zone, for people.
    pub opens: String,
}

impl From<NextWindow> for WhyNot {
    fn from(NextWindow { starts, opens }: NextWindow) -> Self {
        Self::Window { opens, starts: Some(starts) }
    }
}

/// Why a window of updates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// There is no such time zone.
    #[error("the zone {0:?} of a window is unknown; write it as in \"Europe/Berlin\"")]
    UnknownZone(String),
    /// The clock is out of range.
    #[error("the clock of the host says {0:?}, which is no time")]
    NoTime(EpochSeconds),
    /// No window is open soon.
    #[error("no window opens within {DAYS_AHEAD} days")]
    NoneOpens,
}

/// Returns the rules of a time zone. They are compiled in, so that every host has the same.
///
/// # Errors
/// Returns why there are none.
pub(super) fn zone_of(window: &Window) -> Result<TimeZone, WindowError> {
    let zone = TimeZoneDatabase::bundled().get(&window.zone);
    zone.map_err(|_| WindowError::UnknownZone(window.zone.to_string()))
}

/// Returns when a host may start; `None` if it may start now. Without windows it always may.
///
/// # Errors
/// Returns why a window cannot be used.
pub fn next_window(
    windows: &[Window],
    place: Place,
    now: EpochSeconds,
) -> Result<Option<NextWindow>, WindowError> {
    let now = Timestamp::from_second(now.0).map_err(|_| WindowError::NoTime(now))?;
    let spread = i64::try_from((u64::from(place.0) * SPREAD_SECONDS) >> 32).unwrap_or(0);
    let mut next: Option<(i64, Zoned)> = None;
    for window in windows {
        let today = now.to_zoned(zone_of(window)?);
        // The window of yesterday may end today.
        for days in -1..=DAYS_AHEAD {
            let Some((opens, closes)) =
                today.date().checked_add(days.days()).ok().and_then(|day| on_day(window, day, &today))
            else {
                continue;
            };
            let starts = opens.timestamp().as_second() + spread;
            if now >= closes.timestamp() {
                continue;
            }
            if now.as_second() >= starts {
                return Ok(None);
            }
            if next.as_ref().is_none_or(|(at, _)| starts < *at) {
                next = Some((starts, opens));
            }
            break;
        }
    }
    match next {
        Some((starts, opens)) => {
            let zone = opens.time_zone().iana_name().unwrap_or("UTC").to_owned();
            let opens = format!("{} {zone}", opens.strftime("%a %Y-%m-%d %H:%M"));
            Ok(Some(NextWindow { starts: EpochSeconds(starts), opens }))
        }
        None if windows.is_empty() => Ok(None),
        None => Err(WindowError::NoneOpens),
    }
}

/// Returns when a window opens and closes that belongs to a day; `None` if it does not open on that day.
fn on_day(window: &Window, day: Date, zoned: &Zoned) -> Option<(Zoned, Zoned)> {
    if !window.days.contains(usize::try_from(day.weekday().to_monday_zero_offset()).ok()?) {
        return None;
    }
    let at = |day: Date, time: TimeOfDay| {
        let (hours, minutes) = time.hours_and_minutes();
        let (day, hours) = if hours == 24 { (day.tomorrow().ok()?, 0) } else { (day, hours) };
        let time = day.at(i8::try_from(hours).ok()?, i8::try_from(minutes).ok()?, 0, 0);
        time.to_zoned(zoned.time_zone().clone()).ok()
    };
    let last_day = if window.to > window.from { day } else { day.tomorrow().ok()? };
    let (opens, closes) = (at(day, window.from)?, at(last_day, window.to)?);
    // In the night in which the clocks change it can be empty.
    (opens < closes).then_some((opens, closes))
}
