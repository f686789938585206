//! Durations as Compose writes them.

use super::error::ValueError;
use schema::names::quoted;
use schema::time::Span;
use std::time::Duration;

/// Longest duration, in microseconds: a year.
const MICROS_MAX: u64 = 365 * 86_400 * 1_000_000;

/// Reads `90s`, `1m30s`, `1.5h` or `500ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Span, ValueError> {
    let error = || {
        ValueError::new(
            format!("{} is no duration", quoted(text)),
            "write numbers with the units h, m, s, ms or us, as in 10s, 1m30s or 500ms",
        )
    };
    if text == "0" {
        return Ok(Span(Duration::ZERO));
    }
    if text.is_empty() {
        return Err(error());
    }
    let mut micros: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let scale = match unit {
            "h" => 3_600_000_000,
            "m" => 60_000_000,
            "s" => 1_000_000,
            "ms" => 1_000,
            "us" | "µs" => 1,
            _ => return Err(error()),
        };
        let part = scaled(number, scale).ok_or_else(error)?;
        micros = micros.checked_add(part).filter(|micros| *micros <= MICROS_MAX).ok_or_else(|| {
            ValueError::new(format!("{} is longer than a year", quoted(text)), "write a shorter duration")
        })?;
        rest = behind;
    }
    if !micros.is_multiple_of(1_000) {
        let what = format!("{} is no whole number of milliseconds", quoted(text));
        return Err(ValueError::new(what, "write it in milliseconds, as in 500ms"));
    }
    Ok(Span(Duration::from_micros(micros)))
}

/// Returns a decimal number times `scale`, or `None` if it is no number, not whole afterwards, or too large.
pub(super) fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    let has_digits = !(whole.is_empty() && fraction.is_empty());
    if !has_digits || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let whole = whole.checked_mul(scale)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let unit = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale);
    let is_whole = part.is_multiple_of(u128::from(unit));
    let part = u64::try_from(part / u128::from(unit)).ok()?;
    if is_whole { whole.checked_add(part) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_compose_writes_it() {
        for (text, expected) in [
            ("10s", "10s"),
            ("1m30s", "90s"),
            ("1h5m30s20ms", "3930020ms"),
            ("1.5h", "90m"),
            ("0.5s", "500ms"),
            ("2000us", "2ms"),
            ("0", "0s"),
            ("0s", "0s"),
            ("24h", "1d"),
        ] {
            assert_eq!(parse_duration(text).unwrap().to_string(), expected, "{text}");
        }
        for (text, expected) in [
            ("", "no duration"),
            ("10", "no duration"),
            ("s", "no duration"),
            ("1d", "no duration"),
            ("-1s", "no duration"),
            ("1..5s", "no duration"),
            ("1 s", "no duration"),
            ("500us", "no whole number of milliseconds"),
            ("9000h", "longer than a year"),
            ("99999999999999999999h", "no duration"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.what.contains(expected), "{text}: {error}");
        }
    }
}
