//! Tables of pages, and what their cells show.

use super::icons::shape;
use askama::Template;
use fleet::text::cut_to;
use schema::names::{HostName, ServiceName};
use schema::verdict::VerdictKind;

/// Most rows of a table. A page says how many are missing, and the JSON has all of them.
pub(super) const ROWS_MAX: usize = 200;
/// Most characters of a text in a cell.
const TEXT_MAX: usize = 300;
/// Most hosts that a cell names if it leads to all of them, and if it does not.
const NAMED_MAX: usize = 2;
const NAMED_ALONE_MAX: usize = 10;

#[derive(Template)]
#[template(path = "table.html")]
pub(super) struct Table {
    /// Identifies it on its page.
    id: &'static str,
    title: String,
    /// What it means if there is no row.
    empty: &'static str,
    header: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
    /// Number of rows that are not shown.
    more: usize,
    /// Where its data is.
    json: Option<String>,
}

impl Table {
    /// Returns a table with these rows, or as many of them as a page shows.
    pub(super) fn new<const COLUMNS: usize>(
        id: &'static str,
        title: &str,
        header: &'static [&'static str; COLUMNS],
        rows: impl IntoIterator<Item = [Cell; COLUMNS]>,
    ) -> Self {
        let mut rows = rows.into_iter();
        let shown: Vec<Vec<Cell>> = rows.by_ref().take(ROWS_MAX).map(Vec::from).collect();
        Self { id, title: title.into(), empty: "", header, rows: shown, more: rows.count(), json: None }
    }

    /// Says where the data of the table is.
    pub(super) fn json(self, path: impl Into<String>) -> Self {
        Self { json: Some(path.into()), ..self }
    }

    /// Says this if there is no row. Without it, a table without rows is left out.
    pub(super) fn or_say(self, empty: &'static str) -> Self {
        Self { empty, ..self }
    }

    /// True if there is nothing to show.
    pub(super) fn is_left_out(&self) -> bool {
        self.rows.is_empty() && self.empty.is_empty()
    }
}

/// A cell of a table, or another value of a page.
#[derive(Template)]
#[template(path = "cell.html")]
pub(super) enum Cell {
    Text(String),
    Number(String),
    /// A time (RFC 3339).
    Time(String),
    /// Text that leads to another page.
    Link {
        text: String,
        to: String,
    },
    Verdict(VerdictKind),
    /// Hosts: the first by name, and where all of them are.
    Hosts {
        named: Vec<HostName>,
        more: usize,
        to: Option<String>,
    },
    /// A command to copy.
    Command(String),
}

impl Cell {
    /// Text, cut if it is long. The page of a host and the JSON have all of it.
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self::Text(cut_to(text.as_ref(), TEXT_MAX))
    }

    /// Returns the kind of value, for the look of a table.
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Number(_) => "count",
            Self::Time(_) => "at",
            Self::Link { .. } | Self::Hosts { .. } => "names",
            Self::Verdict(_) => "mark",
            Self::Command(_) => "commands",
        }
    }

    pub(super) fn number(number: usize) -> Self {
        Self::Number(number.to_string())
    }

    /// A time, if it is known.
    pub(super) fn time(at: Option<&str>) -> Self {
        at.map_or_else(|| Self::text("unknown"), |at| Self::Time(at.to_owned()))
    }

    pub(super) fn host(host: &HostName) -> Self {
        Self::Link { text: host.to_string(), to: to_host(host) }
    }

    pub(super) fn service(service: &ServiceName) -> Self {
        Self::Link { text: service.to_string(), to: to_service(service) }
    }

    /// The first of these hosts by name, and how many more there are, with where they are listed if there is such a place.
    pub(super) fn hosts<'a>(hosts: impl IntoIterator<Item = &'a HostName>, to: Option<String>) -> Self {
        let mut hosts = hosts.into_iter();
        let most = if to.is_some() { NAMED_MAX } else { NAMED_ALONE_MAX };
        let named: Vec<HostName> = hosts.by_ref().take(most).cloned().collect();
        Self::Hosts { named, more: hosts.count(), to }
    }
}

/// Returns the page of a host.
pub(super) fn to_host(host: &HostName) -> String {
    format!("/hosts/{host}")
}

/// Returns the page of a service.
pub(super) fn to_service(service: &ServiceName) -> String {
    format!("/services/{service}")
}

/// Returns a path with parameters.
pub(super) fn with_parameters<'a>(
    path: &str,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let query = query.extend_pairs(parameters).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// Returns a time of a page: the time of day follows the day after a blank.
pub(super) fn shown_time(at: &str) -> String {
    at.trim_end_matches('Z').replace('T', " ")
}
