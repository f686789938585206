//! The table of results, and the document that contains it.

use std::fmt::Write as _;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md");

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 5]>,
}

impl Report {
    /// Adds a row: what was measured, our result, the yardstick in the same run, and the ratio or
    /// figure that is judged with its upper bound.
    #[expect(clippy::too_many_arguments, reason = "the cells of a row")]
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

    /// Adds the rows of the document that were not measured in this run, and keeps the document's
    /// order.
    pub(crate) fn keep_others(&mut self) {
        let text = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
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
        let text = format!(
            "# Performance\n\nMeasured by `make bench`, which writes this page: {machine}. Times are medians from \
             process start to exit; the yardstick runs in turn with ours on the same store. `bare` programs use the same \
             client library and do nothing but ask and compare; the bench's source is `tests/src/bin/bench`.\n\n{}\n{NOTES}",
            self.table()
        );
        std::fs::write(DOCUMENT, text).unwrap_or_else(|e| panic!("{DOCUMENT}: {e}"));
    }
}

const NOTES: &str = "\
- *verify_hosts* reads one keys-only range; a short list of hosts in a big fleet is read key by key, so its
  cost follows the list.
- *get_failures* counts, and fetches names only of what failed.
- Operations are counted at the store (etcd's own `grpc_server_handled_total`), less the rate of keep-alives
  and backstop reads just before. A thousand agents on two cores keep each other waiting, so now and then a
  request is repeated; with 100 the count is constant.
- *Hosts of a limit* share two cores with the store: without a limit the same thousand agents reach little more than
  100 hosts per second, so the rate of bare claims is out of reach here. A first step includes the start of its process.
- *Names* are counted by the server's own CPU, because `dnsperf` shares the cores with it; knot and unbound serve the
  same names in the same run. What a long answer loses is held against the faster of those that send as much: unbound leaves out
  the addresses of SRV targets. What is left is not ours: of the agent's samples under one A record 88 % are in the
  kernel's UDP and task switching, 7 % in the C library around `recvfrom` and `sendto`, 4 % in the agent.
- *cache_services* is held against two bare programs that write the same file. The first makes a text for every
  interface of every record and keeps the addresses in sets, which a program need not do; the second borrows from the
  answer and sorts each list once. Against the first alone it was not seen that ours copied the names of every record.
  What ours does and neither of them: it checks every name, address and tag. What it saves: each page of the range is
  freed before the next is read.
- *A failing check* is measured in blocks beside its yardstick, because the disk of the store is not the same from
  minute to minute; the thousand checks run at the same time as theirs.
- *A thousand agents* that were cut off try again every 30 to 45 s at last, so they come back evenly over that time. Whoever
  asks while the store starts is answered with others: that is the busiest second.
- *solo-etcd* and etcd run in turn on the same disk, each client with its own connection.
- A short question costs what starting the program costs. That is why releases are optimised as a whole
  (`lto` in `Cargo.toml`) and the command line is read by the definition of one verb (`ctl/src/lib.rs`).
";

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
