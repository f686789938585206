//! The pages while a fleet of real agents is updated: a version that works, one that fails, and back.

use std::process::Command;
use std::time::Duration;
use tests::browser::Browser;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::observer::Observer;
use tests::process::{binary, run};
use tests::wait;

/// An update of the whole fleet on a busy machine takes so long.
const LONG: Duration = Duration::from_secs(120);

/// Number of hosts; `make test-long` has more.
fn host_count() -> usize {
    std::env::var("ORCHESTRATE_TEST_PAGES_HOSTS").map_or(4, |count| count.parse().expect("a number"))
}

struct Watched {
    hosts: Vec<Host>,
    observer: Observer,
    browser: Browser,
}

impl Watched {
    fn orchestrate(&self, line: &str, code: i32) {
        let result = self.hosts[0].command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, code, "{line}: {result:?}");
    }

    fn show(&self, path: &str) {
        self.browser.go(&format!("http://{}{path}", self.observer.address()));
        self.browser.wait_for_text("live, ");
        self.browser.script("window.isSamePage = true");
    }

    /// Waits until the page that is shown says this, without being loaded again.
    fn wait_for_text(&self, text: &str) {
        let says = || self.browser.text().contains(text).then_some(());
        let describe = || {
            let hosts: String = self.hosts.iter().map(Host::describe).collect();
            format!("{}\n{hosts}", self.browser.text())
        };
        wait::until_within(LONG, &format!("the page says {text:?}"), says, describe);
        assert_eq!(self.browser.script("return window.isSamePage"), true);
    }
}

/// Asserts that every command that the page shows is one of the program, with all that it needs.
fn assert_commands_exist(browser: &Browser) {
    let shown = browser.script(
        "return [...document.querySelectorAll('code.command')].map((command) => command.textContent)",
    );
    for command in shown.as_array().expect("a list").iter().filter_map(serde_json::Value::as_str) {
        let words = command.strip_prefix("orchestrate ").expect("a command of this program").split(' ');
        // It needs no store to say that a command is not one: nothing listens there.
        let mut timed = Command::new("timeout");
        timed.arg("10").arg(binary("orchestrate")).args(words);
        timed.env("ORCHESTRATE_ENDPOINTS", "http://127.0.0.1:1").env("ORCHESTRATE_TIMEOUT", "1s");
        let result = run(&mut timed, "");
        assert_ne!(result.status.code(), Some(64), "{command}: {result:?}");
    }
}

#[test]
fn the_pages_show_a_rollout_its_halt_and_the_way_back() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let count = host_count();
    let names: Vec<String> = (1..=count).map(|number| format!("a{number}")).collect();
    let hosts: Vec<Host> = names.iter().map(|name| Host::started(name, &etcd.endpoints())).collect();
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    let (observer, browser) = (Observer::of(&etcd.endpoints()), Browser::start());
    browser.go(&format!("http://{}/#t={}", observer.address(), observer.token()));
    browser.wait_for_text("The fleet by role");
    let watched = Watched { hosts, observer, browser };
    watched.show("/");
    watched.wait_for_text(&format!("All {count} hosts run 1."));
    let policy = "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 2\n[[stage]]\nname = \"canary\"\ncount = 1\n\
                  soak = \"5s\"\n";
    watched.hosts[0].write("policy.toml", policy);
    let policy = watched.hosts[0].path("policy.toml").display().to_string();
    watched.orchestrate(&format!("policy set {policy}"), 0);

    watched.show("/rollouts");
    watched.orchestrate("trigger_update 2 --reason works", 0);
    watched.wait_for_text("Rollout of 2 from 1: ended");
    watched.wait_for_text(&format!("{count} hosts were proven"));
    watched.wait_for_text("at most 2 of the fleet are unavailable at the same time");
    watched.browser.screenshot("rollout-ended");

    watched.hosts.iter().for_each(|host| host.write("code-packages-3", "1\n"));
    watched.orchestrate("trigger_update 3 --reason fails", 0);
    watched.wait_for_text("Rollout of 3 from 2: halted");
    watched.wait_for_text("apply step packages exited with code 1");
    watched.wait_for_text("orchestrate rollout rollback --reason REASON");
    assert_commands_exist(&watched.browser);
    watched.browser.screenshot("rollout-halted");

    watched.show("/");
    watched.wait_for_text("1 host needs you");
    watched.wait_for_text("the rollout is halted");
    assert_commands_exist(&watched.browser);
    watched.browser.screenshot("now-halted");
    watched.browser.click("#causes td.names a");
    watched.browser.wait_for_text("packages");
    assert_commands_exist(&watched.browser);

    watched.show("/");
    watched.orchestrate("rollout rollback --reason back", 0);
    watched.wait_for_text(&format!("All {count} hosts run 2."));
    watched.show("/events");
    for text in ["works", "fails", "back"] {
        watched.wait_for_text(text);
    }
}
