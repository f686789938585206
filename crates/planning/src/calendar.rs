//! Times of the calendar as text.

use schema::time::EpochSeconds;

/// Returns a time as RFC 3339 text; `None` if it is outside the range of the calendar.
pub fn rfc3339(at: EpochSeconds) -> Option<String> {
    jiff::Timestamp::from_second(at.0).ok().map(|time| time.to_string())
}

/// Reads a time of an HTTP header, as in `Wed, 21 Oct 2026 07:28:00 GMT` (RFC 9110, section 5.6.7).
pub fn read_http_date(text: &str) -> Option<EpochSeconds> {
    jiff::fmt::rfc2822::parse(text).ok().map(|time| EpochSeconds(time.timestamp().as_second()))
}

/// Writes a time as RFC 3339 text.
///
/// # Errors
/// Returns the error of the serializer.
pub fn as_rfc3339<S: serde::Serializer>(at: &Option<EpochSeconds>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&at.and_then(rfc3339), serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(EpochSeconds(0)).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(rfc3339(EpochSeconds(i64::MAX)), None);
    }
}
