//! The pages of the observer in a real browser.

use crate::contract::fleet::{FLEET, fill};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::browser::{Browser, ENTER, TAB};
use tests::etcd::Etcd;
use tests::observer::Observer;
use tests::recording::RecordingObserver;
use tests::store::Store;
use tests::wait;

/// The views, and one page of a host and of a service each.
const PAGES: [&str; 7] =
    ["/", "/rollouts", "/services", "/services/web", "/events", "/hosts", "/hosts/web-2"];

/// Text that somebody may write to do harm.
const HOSTILE: &str = "</td><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\"> \
    \u{1b}[2J \u{202e}drawkcab javascript:alert(1)";

/// Puts a fleet with one of everything, in which others have written what they want.
fn fill_with_hostile_text(store: &Store) {
    fill(store, &FLEET);
    let long = "x".repeat(16 * 1024);
    let record = json!({
        "format": 1, "at": 1_416_300_000, "version": "43", "code": 1,
        "reason": format!("{HOSTILE} {long}"), "cause": {"fingerprint": "f1-00000000000a", "line": HOSTILE},
    });
    store.put("/status/validation/failed/web-2", &record.to_string());
    let report = json!({
        "format": 1, "at": 1_416_300_000, "write_id": "w1", "phase": "apply",
        "verdict": {"verdict": "running", "version": "43"}, "target": {"version": "43", "revision": 2},
        "installed": "42",
        "plan": {"phase": "apply", "actions": [], "because": {"reason": "attempt_under_way"}},
        "store": {"lineage": "abc", "epoch": 3}, "log": [HOSTILE, long],
    });
    store.put("/orchestrate/reports/web-2", &report.to_string());
    let service = json!({
        "format": 1, "host": "web-1", "addresses": ["10.0.0.1"], "port": 80, "tags": ["<b>"],
        "meta": {"note": HOSTILE, "word": "y".repeat(12 * 1024)},
    });
    store.put("/available_services/web/web-1", &service.to_string());
    store.put("/orchestrate/health/web/web-1", "passing");
    let record = json!({
        "format": 1, "version": "43", "at": 1_416_300_000, "limits": [], "budget": 3, "by": HOSTILE, "reason": HOSTILE,
    });
    // The version was put at the second revision.
    let rollout = "/orchestrate/rollouts/0000000003-0000000000000000002";
    store.put(&format!("{rollout}/record"), &record.to_string());
    let failed = json!({
        "format": 1, "at": 1_416_300_000, "kind": "attempt", "reason": HOSTILE,
        "cause": {"fingerprint": "f1-00000000000a", "line": HOSTILE},
    });
    store.put(&format!("{rollout}/failed/web-2"), &failed.to_string());
    let event = json!({
        "format": 1, "by": HOSTILE, "client": HOSTILE, "verb": HOSTILE, "what": format!("/{HOSTILE}"), "from": HOSTILE,
        "to": HOSTILE, "reason": HOSTILE,
    });
    store.put("/orchestrate/events/0001416300000000-a", &event.to_string());
    // Two hosts with one cause.
    for host in ["never-1", "never-2"] {
        let entry = r#"{"format":1,"role":"web","since":1416300000}"#;
        store.put(&format!("/orchestrate/hosts/{host}"), entry);
    }
    let freeze = json!({"format": 1, "by": HOSTILE, "at": 1_416_300_000, "reason": HOSTILE});
    store.put("/orchestrate/freezes/role/db/t1", &freeze.to_string());
}

fn url(observer: &Observer, path: &str) -> String {
    format!("http://{}{path}", observer.address())
}

/// Signs in by the link that has the token in its fragment.
fn sign_in(browser: &Browser, observer: &Observer) {
    browser.go(&url(observer, &format!("/#t={}", observer.token())));
    browser.wait_for("the first page is shown", "return document.querySelector('#counts') !== null");
}

/// Goes to a page, and waits until it follows the stream.
fn show(browser: &Browser, observer: &Observer, path: &str) {
    browser.go(&url(observer, path));
    browser.wait_for("the page follows the stream", "return document.body.dataset.followed === 'true'");
}

/// Returns what is wide enough to make a page scroll sideways.
fn too_wide(browser: &Browser) -> Value {
    browser.script(
        "const limit = document.documentElement.clientWidth;
         return document.documentElement.scrollWidth <= limit ? [] :
           [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > limit + 1)
             .map((e) => e.tagName + '.' + e.className).slice(0, 10);",
    )
}

/// The rules of axe-core for accessibility, a file of another licence: `make test-long` brings it and names it.
struct Rules(Option<String>);

impl Rules {
    fn read() -> Self {
        let file = std::env::var_os("ORCHESTRATE_TEST_AXE");
        Self(file.map(|file| std::fs::read_to_string(file).expect("axe-core")))
    }

    /// Asserts which rules the page breaks, if the rules are here.
    fn assert_broken(&self, browser: &Browser, expected: &[&str]) {
        let Some(rules) = &self.0 else { return };
        browser.script(rules);
        let broken = browser.script(
            "return axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
               .then((result) => result.violations.map((found) =>
                 found.id + ': ' + found.nodes.map((node) => node.target).join(' ')))",
        );
        assert_eq!(broken, json!(expected), "{}", browser.url());
    }
}

/// Asserts of each page, as it was at a revision, what holds for that of the present.
fn assert_past_pages_fit(browser: &Browser, observer: &Observer, revision: i64, rules: &Rules) {
    for path in PAGES {
        let joint = if path.contains('?') { '&' } else { '?' };
        browser.go(&url(observer, &format!("{path}{joint}at={revision}")));
        browser.wait_for_text("back to now");
        assert_eq!(too_wide(browser), json!([]), "{path} of the past");
        let text = browser.text();
        assert!(
            path == "/services" || text.contains("<script>"),
            "hostile text is shown as text on {path}: {text}"
        );
        rules.assert_broken(browser, &[]);
    }
}

/// Asserts that verdicts are told apart by the shapes of their cells alone: each pixel counts as set or not, so that
/// neither colour nor brightness helps.
fn assert_shapes_differ(browser: &Browser, observer: &Observer) {
    show(browser, observer, "/");
    browser.script(
        "document.querySelector('canvas.cells').dataset.cells =
           'failed:1 lost:1 blocked:1 frozen:1 waiting:1 running:1 ok:1 unknown:1'",
    );
    // Another width draws the cells again.
    browser.resize(1270, 900);
    let differences = || {
        let found = browser.script(
            "const canvas = document.querySelector('canvas.cells');
             const size = Math.floor(canvas.height / Math.ceil(8 / Math.floor(canvas.width / canvas.height)));
             const columns = Math.floor(canvas.width / size);
             const shape = (cell) => {
               const [x, y] = [(cell % columns) * size, Math.floor(cell / columns) * size];
               const pixels = canvas.getContext('2d').getImageData(x, y, size, size).data;
               return [...pixels].filter((_, place) => place % 4 === 3).map((alpha) => (alpha > 127 ? 1 : 0));
             };
             const shapes = [...Array(8).keys()].map(shape);
             return shapes.flatMap((one, number) => shapes.slice(number + 1).map((other) =>
               one.filter((pixel, place) => pixel !== other[place]).length));",
        );
        let all: Vec<u64> = found.as_array()?.iter().filter_map(Value::as_u64).collect();
        (all.len() == 28 && all.iter().all(|pixels| *pixels >= 8)).then_some(all)
    };
    wait::until("the shapes of the verdicts differ", differences, || {
        browser.script("return document.querySelector('canvas.cells').outerHTML").to_string()
    });
    browser.script("document.documentElement.style.filter = 'grayscale(1)'");
    browser.screenshot("now-grey");
}

#[test]
fn a_person_finds_what_is_wrong_in_a_browser() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill_with_hostile_text(&store);
    let recorder = RecordingObserver::start(&etcd.endpoints());
    recorder.wait_for(store.revision());
    let observer = &recorder.observer;
    let browser = Browser::start();

    // Who has no token sees nothing, and a wrong one is refused.
    browser.go(&url(observer, "/hosts/web-2"));
    browser.wait_for_text("Sign in");
    let rules = Rules::read();
    rules.assert_broken(&browser, &[]);
    browser.go(&url(observer, "/#t=wrong"));
    browser.wait_for_text("The token of this link is not accepted.");
    sign_in(&browser, observer);
    assert_eq!(browser.url(), url(observer, "/"), "the token does not stay in the address");
    assert_eq!(browser.script("return document.cookie"), "", "scripts cannot read the cookie");
    browser.wait_for("the page follows the stream", "return document.body.dataset.followed === 'true'");
    browser.screenshot("now");

    // Each count is within six stops.
    browser.press(TAB);
    browser.press(ENTER);
    let focused = || browser.script("return document.activeElement.getAttribute('href')");
    let counts = browser
        .script("return [...document.querySelectorAll('#counts a')].map((a) => a.getAttribute('href'))");
    let counts = counts.as_array().expect("a list");
    assert!(counts.len() > 2, "{counts:?}");
    for (number, expected) in counts.iter().enumerate() {
        assert_eq!(focused(), *expected, "count {number}");
        browser.press(TAB);
    }
    assert!(counts.len() <= 6, "{counts:?}");

    // The number of hosts of a cause leads to just these hosts.
    browser.script("[...document.querySelectorAll('#causes tr')].find((row) => row.textContent.includes('never seen')).querySelector('.names a').id = 'cause'");
    assert_eq!(browser.script("return document.querySelector('#cause').textContent"), "2");
    browser.click("#cause");
    browser.wait_for_text("2 hosts: lost: on the roster, but never seen");
    let hosts =
        "return [...document.querySelectorAll('#hosts td:first-child')].map((cell) => cell.innerText)";
    assert_eq!(browser.script(hosts), json!(["never-1", "never-2"]));
    browser.go(&url(observer, "/"));

    // From a cause to its hosts, to a host, to what it said last.
    browser.click("#counts a.failed");
    browser.wait_for_text("verdict failed");
    browser.click("#hosts tbody a");
    browser.wait_for("a page of a host", "return location.pathname.startsWith('/hosts/')");
    // A link with a wrong token takes nothing away from who is signed in.
    browser.go(&url(observer, "/#t=wrong"));
    browser.wait_for("the page follows the stream", "return document.body.dataset.followed === 'true'");
    browser.press("/");
    browser.press("web-2");
    browser.press(ENTER);
    browser.wait_for("the host is found", "return location.pathname === '/hosts/web-2'");
    browser.wait_for_text("orchestrate why web-2");

    // No text of others does anything on any page, and nothing makes a page scroll sideways on a small screen.
    browser.messages();
    for width in [1280, 640, 320] {
        browser.resize(width, 900);
        for path in PAGES {
            show(&browser, observer, path);
            assert_eq!(too_wide(&browser), json!([]), "{path} with {width} pixels");
            let title = browser.script("return document.title");
            assert!(title.as_str().is_some_and(|title| title.ends_with(" · orchestrate")), "{path}: {title}");
            let text = browser.text();
            let shows_hostile = ["/services"].contains(&path) || text.contains("<script>");
            assert!(shows_hostile, "hostile text is shown as text on {path}: {text}");
            assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'), "{path}");
            rules.assert_broken(&browser, &[]);
        }
        browser.screenshot(&format!("host-{width}"));
        assert_past_pages_fit(&browser, observer, store.revision(), &rules);
        browser.screenshot(&format!("past-{width}"));
    }
    assert_eq!(browser.messages(), Vec::<String>::new());
    // The policy does refuse what it should, so its silence means something.
    browser.script(
        "const image = new Image(); image.src = 'http://127.0.0.1:9/planted'; document.body.append(image);",
    );
    let refused = || {
        Some(browser.messages()).filter(|found| found.iter().any(|m| m.contains("Content Security Policy")))
    };
    wait::until("a planted violation is reported", refused, || browser.text());
    let written = browser.script(
        "try { document.body.innerHTML = '<b>'; return 'written'; } catch (error) { return error.name; }",
    );
    assert_eq!(written, "TypeError", "text does not become HTML but by the policy of the page");

    browser.resize(1280, 900);
    assert_shapes_differ(&browser, observer);
    browser.devtools(
        "Emulation.setEmulatedMedia",
        &json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]}),
    );
    browser.go(&url(observer, "/"));
    let back = browser.script("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(back, "rgb(20, 23, 27)", "dark");
    browser.screenshot("now-dark");
    rules.assert_broken(&browser, &[]);
    // The rules do find what is wrong.
    browser.script("document.documentElement.lang = ''");
    rules.assert_broken(&browser, &["html-has-lang: html"]);
}

#[test]
fn a_page_follows_the_store_and_says_how_old_it_is() {
    let mut etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let observer = Observer::of(&etcd.endpoints());
    let browser = Browser::start();
    sign_in(&browser, &observer);
    // Eight tabs work, though a browser has six connections for one server.
    for _ in 1..8 {
        browser.new_tab();
        show(&browser, &observer, "/");
    }
    let tabs = browser.tabs();
    assert_eq!(tabs.len(), 8);
    for tab in &tabs {
        browser.show_tab(tab);
        browser.script("window.isSamePage = true");
    }
    store.put("/current_version", "44");
    for tab in &tabs {
        browser.show_tab(tab);
        browser.wait_for_text("run 44");
        assert_eq!(
            browser.script("return window.isSamePage"),
            true,
            "a page changes without being loaded again"
        );
    }

    // What was chosen stays chosen when the content changes.
    browser.script("document.querySelector('#counts a').focus()");
    store.put("/current_version", "45");
    browser.wait_for_text("run 45");
    assert_eq!(browser.script("return document.activeElement.parentElement.parentElement.id"), "counts");

    browser.script("document.querySelector('#causes button').focus()");
    store.put("/orchestrate/hosts/new-1", "{}");
    browser.wait_for_text("new-1");
    assert_eq!(browser.script("return document.activeElement.className"), "copy");

    // A table does not change under the pointer, and says that there is something new.
    browser.point_at("#causes tbody tr");
    store.put("/current_version", "47");
    browser.wait_for_text("Show what is new");
    assert!(browser.text().contains("run 45"), "{}", browser.text());
    browser.click("#news button");
    browser.wait_for_text("run 47");

    // The observer ends and comes back.
    observer.signal(Signal::KILL);
    browser.wait_for_text("The observer does not answer.");
    assert!(browser.text().contains("run 47"), "what was known stays");
    let observer = observer.again();
    browser.wait_for("the band goes away", "return document.querySelector('#band').hidden");
    store.put("/current_version", "46");
    browser.wait_for_text("run 46");

    // The store goes away and comes back.
    drop(store);
    etcd.kill_member(0);
    let limit = wait::DEADLINE * 2;
    let says_away = || Some(()).filter(|()| browser.text().contains("The store is away."));
    wait::until_within(limit, "the page says that the store is away", says_away, || browser.text());
    assert_eq!(browser.script("return document.body.classList.contains('stale')"), true);
    let age = || browser.script("return document.querySelector('#band-age').textContent");
    let before = age();
    wait::until("the age grows", || Some(()).filter(|()| age() != before), || browser.text());
    browser.screenshot("stale");
    // An observer that knows nothing takes nothing away.
    observer.signal(Signal::KILL);
    let observer = observer.again();
    browser.wait_for_text("The store has not been read yet.");
    assert!(browser.text().contains("run 46"), "{}", browser.text());
    etcd.start_member(0);
    let is_back =
        || Some(()).filter(|()| browser.script("return document.querySelector('#band').hidden") == true);
    wait::until_within(limit, "the page is fresh again", is_back, || {
        format!("{}\n{}", browser.text(), observer.log())
    });
}

#[test]
fn pages_need_no_script() {
    let etcd = Etcd::single();
    fill_with_hostile_text(&etcd.store());
    let observer = Observer::of(&etcd.endpoints());
    let browser = Browser::start();
    browser.devtools("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    browser.go(&url(&observer, "/hosts/web-2"));
    browser.click("input[name=token]");
    browser.press("wrong");
    browser.press(ENTER);
    browser.wait_for_text("This is not the token.");
    browser.click("input[name=token]");
    browser.press(&observer.token());
    browser.press(ENTER);
    // The sign-in leads to what was wanted.
    browser.wait_for_text("orchestrate logs web-2");
    for (path, text) in [
        ("/", "Hosts that are not ok"),
        ("/rollouts", "Rollout of 43: goes on"),
        ("/services", "All services"),
        ("/services/web", "1 of 1 functional"),
        ("/events", "is an act of a command"),
        ("/hosts?verdict=failed&role=", "verdict failed"),
        ("/hosts/web-2", "orchestrate logs web-2"),
        ("/hosts/nobody", "host nobody is not known"),
        ("/hosts?colour=red", "unknown parameter"),
        ("/search?q=WEB", "web-1"),
    ] {
        browser.go(&url(&observer, path));
        browser.wait_for_text(text);
        browser.wait_for_text("live, ");
    }
}
