//! The table of results, and the document that contains it.

use std::fmt::Write as _;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md");

/// How the line of the document begins that describes the machine of a whole run.
const MACHINE: &str = "Machine: ";

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 5]>,
    /// What the document says of the machines, if only these parts were measured again.
    before: Option<(String, String)>,
}

impl Report {
    /// Adds a row: what was measured, our result, the yardstick in the same run, and the ratio or
    /// figure that is judged with its upper bound.
    pub(crate) fn row(&mut self, what: &str, ours: String, yardstick: String, figure: f64, bound: f64) {
        let judged = format!("{figure:.2} (at most {bound})");
        let verdict = if figure <= bound { "yes" } else { "**no**" };
        self.rows.push([what.into(), ours, yardstick, judged, verdict.into()]);
        let last = &self.rows[self.rows.len() - 1];
        Self::say(&format!("{}: {} against {}: {} {}", last[0], last[1], last[2], last[3], last[4]));
    }

    #[allow(clippy::print_stdout, reason = "a program for people at a terminal")]
    fn say(line: &str) {
        println!("{line}");
    }

    fn table(&self) -> String {
        let mut text = String::from(
            "| what | ours | yardstick, same run | figure (bound) | held |\n|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }

    pub(crate) fn print(&self) {
        Self::say(&self.table());
    }

    /// Adds the rows of the document that were not measured in this run of some parts, and keeps the document's
    /// order.
    pub(crate) fn keep_others(&mut self, parts: &[&str]) {
        let text = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
        let again = format!("Measured again, {}: ", parts.join(" "));
        let is_of_machine = |line: &&str| line.starts_with(MACHINE) || line.starts_with("Measured again, ");
        let machines = text.lines().filter(is_of_machine).filter(|line| !line.starts_with(&again));
        self.before = Some((machines.collect::<Vec<_>>().join("\n\n"), again));
        let mut measured = std::mem::take(&mut self.rows);
        for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what ")) {
            let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            let Ok(row) = <[String; 5]>::try_from(cells.collect::<Vec<_>>()) else { continue };
            let now = measured.iter().position(|measured| measured[0] == row[0]);
            self.rows.push(now.map_or(row, |index| measured.remove(index)));
        }
        self.rows.append(&mut measured);
    }

    pub(crate) fn write(&self) {
        let machine = machine();
        let machines = match &self.before {
            None => format!("{MACHINE}{machine}."),
            Some((before, again)) => format!("{before}\n\n{again}{machine}."),
        };
        let text = format!(
            "# Performance\n\n`make bench` measures these figures and writes this page.\n\n{machines}\n\n{}\n{NOTES}",
            self.table()
        );
        std::fs::write(DOCUMENT, text).unwrap_or_else(|e| panic!("{DOCUMENT}: {e}"));
    }
}

/// The text below the table.
const NOTES: &str = include_str!("notes.md");

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or(": unknown")
        .trim_start_matches(['\t', ' ', ':']);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let etcd = std::process::Command::new("etcd").arg("--version").output();
    let etcd = etcd
        .map(|o| String::from_utf8_lossy(&o.stdout).lines().next().unwrap_or("").to_owned())
        .unwrap_or_default();
    format!("{cores} cores of {model}, Linux {}, {etcd}, one member on its local disk", kernel.trim())
}
