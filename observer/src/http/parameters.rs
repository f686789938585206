//! The parameters of requests. An unknown one is an error, so that a typing error does not show everything.

use axum::http::StatusCode;
use fleet::views::{HostFilter, HostOrder};
use http_server::ErrorResponse;
use schema::names::{HostName, Role, quoted};
use schema::time::parse_duration;
use schema::verdict::VerdictKind;
use std::time::Duration;

/// The parameters of a request, in their order.
pub(super) type Parameters = Vec<(String, String)>;

/// Refuses a request that cannot be understood.
pub(super) fn refused(why: impl std::fmt::Display) -> ErrorResponse {
    ErrorResponse::Rejected(StatusCode::BAD_REQUEST, why.to_string())
}

/// Refuses a request that may succeed later.
pub(super) fn refused_for_now(why: &str) -> ErrorResponse {
    ErrorResponse::Rejected(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}

/// Refuses a parameter that the path does not know.
pub(super) fn unknown(name: &str, known: &[&str]) -> ErrorResponse {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    refused(format!("unknown parameter {}; known here: {known}", quoted(name)))
}

/// Which hosts are listed, and how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HostsParameters {
    pub(super) filter: HostFilter,
    pub(super) order: HostOrder,
    /// Whether decommissioned hosts are listed too.
    pub(super) all: bool,
}

impl HostsParameters {
    /// Reads the parameters of a list of hosts.
    pub(super) fn read(parameters: &Parameters) -> Result<Self, ErrorResponse> {
        let mut read = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "sort" => read.order = one_of(name, value, &HostOrder::ALL, HostOrder::as_str)?,
                "all" => read.all = flag(name, value)?,
                "verdict" => {
                    let verdict = one_of(name, value, &VerdictKind::ALL, VerdictKind::as_str)?;
                    read.filter.verdicts.push(verdict);
                }
                _ if select(&mut read.filter, name, value)? => {}
                _ => return Err(unknown(name, &["role", "group", "label", "verdict", "sort", "all"])),
            }
        }
        Ok(read)
    }
}

/// Reads the parameters that select hosts by their roster entries.
pub(super) fn read_filter(parameters: &Parameters) -> Result<HostFilter, ErrorResponse> {
    let mut filter = HostFilter::default();
    for (name, value) in parameters {
        if !select(&mut filter, name, value)? {
            return Err(unknown(name, &["role", "group", "label"]));
        }
    }
    Ok(filter)
}

/// Adds a parameter to the filter, if it is one of it.
fn select(filter: &mut HostFilter, name: &str, value: &str) -> Result<bool, ErrorResponse> {
    match name {
        "role" => filter.roles.push(Role::new(value).map_err(refused)?),
        "group" => filter.groups.push(Role::new(value).map_err(refused)?),
        "label" => filter.labels.push(HostFilter::parse_label(value).map_err(refused)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Which events are listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EventsParameters {
    pub(super) since: Option<Duration>,
    pub(super) host: Option<HostName>,
}

impl EventsParameters {
    /// Reads the parameters of a list of events.
    pub(super) fn read(parameters: &Parameters) -> Result<Self, ErrorResponse> {
        let mut read = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "since" => read.since = Some(parse_duration(value).map_err(refused)?),
                "host" => read.host = Some(HostName::folded(value).map_err(refused)?),
                _ => return Err(unknown(name, &["since", "host"])),
            }
        }
        Ok(read)
    }
}

/// Reads the parameter of a service's page: whether the checks that do not pass are shown.
pub(super) fn read_checks(parameters: &Parameters) -> Result<bool, ErrorResponse> {
    let mut checks = false;
    for (name, value) in parameters {
        match name.as_str() {
            "checks" => checks = flag(name, value)?,
            _ => return Err(unknown(name, &["checks"])),
        }
    }
    Ok(checks)
}

/// Reads the value of the only parameter that the path knows.
pub(super) fn read_one<'a>(
    parameters: &'a Parameters,
    known: &str,
) -> Result<Option<&'a str>, ErrorResponse> {
    match parameters.iter().find(|(name, _)| name != known) {
        Some((name, _)) => Err(unknown(name, &[known])),
        None => Ok(parameters.last().map(|(_, value)| value.as_str())),
    }
}

pub(super) fn read_none(parameters: &Parameters) -> Result<(), ErrorResponse> {
    match parameters.first() {
        Some((name, _)) => Err(unknown(name, &[])),
        None => Ok(()),
    }
}

fn flag(name: &str, value: &str) -> Result<bool, ErrorResponse> {
    match value {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(refused(format!("{name} is {}; it can be true or false", quoted(value)))),
    }
}

/// Reads a parameter that is one of these words.
pub(super) fn one_of<T: Copy>(
    name: &str,
    value: &str,
    all: &[T],
    word: fn(T) -> &'static str,
) -> Result<T, ErrorResponse> {
    let found = all.iter().copied().find(|known| word(*known) == value);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().copied().map(word).collect();
        refused(format!("{name} is {}; it can be {}", quoted(value), known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Parameters {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T, ErrorResponse>) -> String {
        match result {
            Err(ErrorResponse::Rejected(StatusCode::BAD_REQUEST, text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parameters_are_read_as_the_options_of_the_command() {
        let pairs = [("role", "web"), ("role", "db"), ("verdict", "failed"), ("sort", "since"), ("all", "")];
        let read = HostsParameters::read(&parameters(&pairs)).unwrap();
        assert_eq!((read.filter.roles.len(), read.order, read.all), (2, HostOrder::Since, true));
        assert_eq!(read.filter.verdicts, [VerdictKind::Failed]);
        let read = EventsParameters::read(&parameters(&[("since", "2h"), ("host", "WEB-1")])).unwrap();
        assert_eq!(read.since, Some(Duration::from_secs(7200)));
        assert_eq!(read.host, Some(HostName::new("web-1").unwrap()));
        assert!(read_checks(&parameters(&[("checks", "1")])).unwrap());
    }

    #[test]
    fn wrong_parameters_are_refused_with_what_would_be_right() {
        let check = |pairs: &[(&str, &str)], expected: &str| {
            assert_eq!(refusal(HostsParameters::read(&parameters(pairs))), expected);
        };
        check(
            &[("rol", "web")],
            "unknown parameter \"rol\"; known here: role, group, label, verdict, sort, all",
        );
        check(&[("sort", "age")], "sort is \"age\"; it can be host, role, version, verdict, since");
        check(&[("all", "yes")], "all is \"yes\"; it can be true or false");
        check(&[("label", "x")], "label \"x\" is not NAME=VALUE");
        assert_eq!(
            refusal(read_none(&parameters(&[("x", "")]))),
            "unknown parameter \"x\"; known here: none"
        );
    }
}
