//! The two formats in which Prometheus reads metrics, and how a client chooses one.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0, which Prometheus asks for first.
    OpenMetrics,
    /// Prometheus' own text format, version 0.0.4, which every other reader knows.
    Text,
}

impl MetricsFormat {
    /// Returns the format for the `Accept` header of a request.
    pub fn accepted(header: &str) -> Self {
        let is_open = |part: &str| {
            let mut parameters = part.split(';').map(str::trim);
            let is_kind = parameters.next() == Some("application/openmetrics-text");
            is_kind && !parameters.any(|parameter| matches!(parameter, "q=0" | "q=0.0"))
        };
        if header.split(',').any(is_open) { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns a text in OpenMetrics' format in this one.
    pub fn of_open_metrics(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Text => plain(&text),
        }
    }
}

/// Translates OpenMetrics to the text format 0.0.4: there a counter's family has the name of its samples, an info is
/// a gauge, and units and the end are not marked.
fn plain(text: &str) -> String {
    let kinds: std::collections::HashMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let comment = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        let Some((what, rest)) = comment else {
            if line != "# EOF" {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        };
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (name, kind): (Cow<'_, str>, &str) = match kinds.get(name).copied() {
            Some("counter") => (format!("{name}_total").into(), "counter"),
            Some("info") => (format!("{name}_info").into(), "gauge"),
            kind => (name.into(), kind.unwrap_or("untyped")),
        };
        // Writing to a string does not fail.
        let _ = match what {
            "TYPE" => writeln!(out, "# TYPE {name} {kind}"),
            "HELP" => writeln!(out, "# HELP {name} {rest}"),
            _ => Ok(()),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_open_metrics_only_if_it_accepts_them() {
        let check = |header: &str, expected: MetricsFormat| {
            assert_eq!(MetricsFormat::accepted(header), expected, "{header}")
        };
        check("", MetricsFormat::Text);
        check("*/*", MetricsFormat::Text);
        check("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", MetricsFormat::Text);
        check("application/openmetrics-text; version=1.0.0; q=0", MetricsFormat::Text);
        // What Prometheus sends.
        check(
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            MetricsFormat::OpenMetrics,
        );
    }

    #[test]
    fn the_text_format_names_counters_and_infos_as_their_samples() {
        let open = "# HELP a_steps Steps done.\n# TYPE a_steps counter\na_steps_total{x=\"# HELP\"} 1\n\
             # HELP a_build The version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
             # HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 0.5\n# EOF\n";
        let expected = "# HELP a_steps_total Steps done.\n# TYPE a_steps_total counter\na_steps_total{x=\"# HELP\"} 1\n\
             # HELP a_build_info The version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
             # HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_sum 0.5\n";
        assert_eq!(MetricsFormat::Text.of_open_metrics(open.to_owned()), expected);
        assert_eq!(MetricsFormat::OpenMetrics.of_open_metrics(open.to_owned()), open);
    }
}
