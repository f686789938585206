//! The windows of a rollout: the times of the week in which hosts start to update.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Largest number of windows in a policy.
pub const WINDOWS_MAX: usize = 16;

/// A time of the week in which hosts start to update. A host starts while any window is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The days on which it opens.
    #[serde(default, skip_serializing_if = "Weekdays::is_all")]
    pub days: Weekdays,
    /// When it opens.
    pub from: TimeOfDay,
    /// When it closes: on the next day if that is not after `from`.
    pub to: TimeOfDay,
    /// The time zone, by its name in the IANA database.
    pub zone: String,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { days, from, to, zone } = self;
        write!(f, "{days} {from} to {to} {zone}")
    }
}

const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Days of the week, written as `Mon-Thu` or `Sat,Sun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Weekdays([bool; 7]);

impl Weekdays {
    /// True if the day belongs to these; Monday is 0.
    pub fn contains(&self, day: usize) -> bool {
        self.0.get(day).copied().unwrap_or(false)
    }

    fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Weekdays {
    fn default() -> Self {
        Self([true; 7])
    }
}

/// A text that names no days of the week.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} are no days of the week; write them as in \"Mon-Thu\" or \"Sat,Sun\"")]
pub struct NoWeekdays(String);

impl FromStr for Weekdays {
    type Err = NoWeekdays;

    fn from_str(text: &str) -> Result<Self, NoWeekdays> {
        let day = |name: &str| {
            let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name.trim()));
            at.ok_or_else(|| NoWeekdays(text.to_owned()))
        };
        let mut days = [false; 7];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (mut at, last) = (day(first)?, day(last)?);
            days[at] = true;
            // A range may go over the end of the week.
            while at != last {
                at = (at + 1) % 7;
                days[at] = true;
            }
        }
        Ok(Self(days))
    }
}

impl TryFrom<String> for Weekdays {
    type Error = NoWeekdays;

    fn try_from(text: String) -> Result<Self, NoWeekdays> {
        text.parse()
    }
}

impl From<Weekdays> for String {
    fn from(days: Weekdays) -> Self {
        days.to_string()
    }
}

impl fmt::Display for Weekdays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < 7 {
            let length = self.0[at..].iter().take_while(|is_in| **is_in).count();
            match length {
                0 => {}
                1 => parts.push(NAMES[at].to_owned()),
                _ => parts.push(format!("{}-{}", NAMES[at], NAMES[at + length - 1])),
            }
            at += length + 1;
        }
        f.write_str(&parts.join(","))
    }
}

/// A time of the day in minutes, written as `09:30`. `24:00` is the end of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// Returns hours, from 0 to 24, and minutes.
    pub fn hours_and_minutes(self) -> (u16, u16) {
        (self.0 / 60, self.0 % 60)
    }
}

/// A text that is no time of the day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time of the day; write it as in \"09:30\"")]
pub struct NoTimeOfDay(String);

impl FromStr for TimeOfDay {
    type Err = NoTimeOfDay;

    fn from_str(text: &str) -> Result<Self, NoTimeOfDay> {
        let number = |text: &str| {
            let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { text.parse::<u16>().ok() } else { None }
        };
        let parts =
            text.split_once(':').and_then(|(hours, minutes)| Some((number(hours)?, number(minutes)?)));
        let minutes = parts.filter(|(_, minutes)| *minutes < 60).map(|(hours, minutes)| hours * 60 + minutes);
        let minutes = minutes.filter(|minutes| *minutes <= 24 * 60);
        minutes.map(Self).ok_or_else(|| NoTimeOfDay(text.to_owned()))
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = NoTimeOfDay;

    fn try_from(text: String) -> Result<Self, NoTimeOfDay> {
        text.parse()
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> Self {
        time.to_string()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes) = self.hours_and_minutes();
        write!(f, "{hours:02}:{minutes:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_they_are_read() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<Weekdays>().unwrap().to_string(), expected, "{text}");
        };
        check("Mon-Thu", "Mon-Thu");
        check("mon, wed,Sat-Sun", "Mon,Wed,Sat-Sun");
        check("Fri-Mon", "Mon,Fri-Sun");
        check("Sun", "Sun");
        check("Tue-Mon", "Mon-Sun");
        for bad in ["", "Mon-", "Monday", "Mon;Tue", "1-5"] {
            let error = bad.parse::<Weekdays>().unwrap_err();
            assert!(error.to_string().contains("are no days of the week"), "{bad}: {error}");
        }
    }

    #[test]
    fn times_of_the_day_have_hours_and_minutes() {
        for good in ["00:00", "09:30", "23:59", "24:00"] {
            assert_eq!(good.parse::<TimeOfDay>().unwrap().to_string(), good);
        }
        for bad in ["", "9:30", "09:60", "24:01", "25:00", "09-30", "+9:30", "09:30:00"] {
            let error = bad.parse::<TimeOfDay>().unwrap_err();
            assert!(error.to_string().contains("is no time of the day"), "{bad}: {error}");
        }
    }
}
