//! Amounts of memory and of processors.

use super::duration::scaled;
use super::error::ValueError;
use schema::names::quoted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most processors that can be reserved, in thousandths.
const MILLI_CPUS_MAX: u64 = 4_096_000;

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Reads `64m`, `1.5gb`, `1024` or `512k`. Units count in powers of 1024, as Compose does.
    ///
    /// # Errors
    /// Returns what would be right if the text is no amount.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let scale: Option<u64> = match unit.trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "k" | "kb" | "kib" => Some(1 << 10),
            "m" | "mb" | "mib" => Some(1 << 20),
            "g" | "gb" | "gib" => Some(1 << 30),
            "t" | "tb" | "tib" => Some(1 << 40),
            _ => None,
        };
        let bytes =
            scale.and_then(|scale| scaled(number, scale)).filter(|bytes| i64::try_from(*bytes).is_ok());
        bytes.map(Self).ok_or_else(|| {
            let what = format!("{} is no amount of memory", quoted(text));
            ValueError::new(what, "write a number with the unit b, k, m or g, as in 64m")
        })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of processors, in thousandths. As text it is a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MilliCpus(u32);

impl MilliCpus {
    /// Reads `0.25` or `2`.
    ///
    /// # Errors
    /// Returns what would be right if the text is no number of processors.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let milli = scaled(text, 1_000).filter(|milli| *milli <= MILLI_CPUS_MAX);
        let milli = milli.and_then(|milli| u32::try_from(milli).ok());
        milli.map(Self).ok_or_else(|| {
            let what = format!("{} is no number of processors", quoted(text));
            ValueError::new(what, "write a number with at most three decimals, as in 0.25 or 2")
        })
    }

    /// Returns the number in thousandths of a processor.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl TryFrom<String> for MilliCpus {
    type Error = ValueError;
    fn try_from(text: String) -> Result<Self, ValueError> {
        Self::parse(&text)
    }
}

impl From<MilliCpus> for String {
    fn from(cpus: MilliCpus) -> Self {
        cpus.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_of_memory_has_a_unit_of_compose() {
        for (text, expected) in [
            ("0", 0),
            ("1024", 1024),
            ("2b", 2),
            ("64m", 64 << 20),
            ("64M", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1.5gb", 3 << 29),
            ("1t", 1 << 40),
        ] {
            assert_eq!(Bytes::parse(text), Ok(Bytes(expected)), "{text}");
        }
        for text in ["", "m", "-1m", "1x", "1.0.0m", "0.3b", "99999999999g", "1 2"] {
            assert!(Bytes::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_of_processors_has_three_decimals() {
        for (text, expected) in [("0", "0"), ("2", "2"), ("0.25", "0.25"), ("0.50", "0.5"), (".5", "0.5")] {
            assert_eq!(MilliCpus::parse(text).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", ".", "-1", "0.0001", "5000", "1e3", "two"] {
            assert!(MilliCpus::parse(text).is_err(), "{text}");
        }
    }
}
