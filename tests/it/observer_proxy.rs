//! The observer behind the proxies of its manual, and an agent behind a load balancer that checks it.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::browser::Browser;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::observer::Observer;
use tests::process::{Running, free_ports, run};
use tests::wait;

/// The observer sends an event each second. A proxy that collects them until it has some kilobytes needs longer.
const FOUR_EVENTS: Duration = Duration::from_secs(20);

/// Returns the sample of the manual for a proxy, for this path and observer.
fn sample(language: &str, path: &str, observer: &str) -> String {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/observer.md");
    let text = std::fs::read_to_string(manual).expect("the manual");
    let chapter = text.split("### Behind a proxy").nth(1).expect("the chapter");
    let block = chapter.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    let sample = block.unwrap_or_else(|| panic!("a sample for {language}"));
    assert!(sample.contains("/fleet/") && sample.contains("127.0.0.1:8590"), "{sample}");
    sample.replace("/fleet/", &format!("{path}/")).replace("127.0.0.1:8590", observer)
}

fn start(directory: &Path, language: &str, port: u16, sample: &str) -> Running {
    let at = directory.display();
    let (program, arguments, text) = match language {
        "nginx" => (
            "nginx",
            &["-c"][..],
            format!(
                "daemon off; user root; pid {at}/nginx.pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n\
                 server {{ listen 127.0.0.1:{port};\n{sample}}} }}\n"
            ),
        ),
        "apache" => {
            let modules = ["mpm_event", "authz_core", "proxy", "proxy_http"];
            let load =
                |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
            let modules = modules.map(load).concat();
            let text = format!(
                "ServerRoot {at}\nDefaultRuntimeDir {at}\nPidFile {at}/apache.pid\nErrorLog {at}/apache.log\n\
                 ServerName localhost\nListen 127.0.0.1:{port}\n{modules}User www-data\nGroup www-data\n\
                 <VirtualHost 127.0.0.1:{port}>\n{sample}</VirtualHost>\n"
            );
            ("apache2", &["-D", "FOREGROUND", "-f"][..], text)
        }
        "haproxy" => (
            "haproxy",
            &["-db", "-f"][..],
            format!(
                "defaults\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n\
                 frontend f\n    mode http\n    bind 127.0.0.1:{port}\n{sample}"
            ),
        ),
        other => panic!("{other}"),
    };
    let file = directory.join(format!("{language}-{port}.conf"));
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(program);
    let running = Running::start(
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(arguments).arg(&file),
        &directory.join(format!("{language}-{port}.log")),
    );
    let listens = || TcpStream::connect(("127.0.0.1", port)).ok();
    wait::until(&format!("{language} listens"), listens, || {
        std::fs::read_to_string(directory.join(format!("{language}-{port}.log"))).unwrap_or_default()
    });
    running
}

fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    String::from_utf8_lossy(&run(command.args(["-s", "-i"]).args(arguments), "").stdout).into_owned()
}

/// Reads four events of the stream, and returns how long that took.
fn four_events(port: u16, path: &str, token: &str) -> Duration {
    let began = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a limit");
    write!(
        stream,
        "GET {path}/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    .expect("sent");
    let data = BufReader::new(stream).lines().map_while(Result::ok);
    let events: Vec<Value> =
        data.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).take(4).collect();
    assert_eq!(events.len(), 4, "{events:?}");
    began.elapsed()
}

#[test]
fn people_use_the_observer_through_each_proxy_of_the_manual() {
    let etcd = Etcd::single();
    let directory = tempfile::tempdir().expect("a directory");
    // Apache's workers have another user.
    run(Command::new("chmod").arg("755").arg(directory.path()), "");
    for path in ["/fleet", ""] {
        for language in ["nginx", "apache", "haproxy"] {
            let [port] = free_ports();
            let origin = format!("http://127.0.0.1:{port}");
            let base = format!("{origin}{path}");
            let store = format!("endpoints = {:?}", etcd.endpoints());
            let observer = Observer::start_with(&store, &format!("public_url = \"{base}/\"\n"));
            observer.wait_for_health("fresh");
            let token = observer.token();
            let sample = sample(language, path, &observer.address());
            let _proxy = start(directory.path(), language, port, &sample);
            let what = format!("{language} at {path:?}");

            let page = curl(&[&format!("{base}/hosts"), "-H", "Accept: text/html"]);
            assert!(page.starts_with("HTTP/1.1 401"), "{what}: {page}");
            for link in [format!("action=\"{path}/v1/session\""), format!("href=\"{path}/page.css\"")] {
                assert!(page.contains(&link), "{what}: {link}: {page}");
            }
            let style = curl(&[&format!("{base}/page.css")]);
            assert!(style.starts_with("HTTP/1.1 200"), "{what}: {style}");
            // A browser sends the origin of the page.
            let sign_in = |origin: &str| {
                let (origin, token) = (format!("Origin: {origin}"), format!("token={token}"));
                curl(&[&format!("{base}/v1/session"), "-H", &origin, "-d", &token, "-d", "to=/hosts"])
            };
            let answer = sign_in(&origin);
            let head = answer.to_lowercase();
            assert!(answer.starts_with("HTTP/1.1 303"), "{what}: {answer}");
            assert!(head.contains(&format!("location: {path}/hosts\r\n")), "{what}: {answer}");
            assert!(head.contains(&format!("; path={path}/; ")), "{what}: {answer}");
            for other in ["http://evil.example", "http://127.0.0.1:1"] {
                let answer = sign_in(other);
                assert!(answer.starts_with("HTTP/1.1 403"), "{what} from {other}: {answer}");
            }
            let took = four_events(port, path, &token);
            assert!(took < FOUR_EVENTS, "{what}: {took:?}");
            // Its own address stays usable, with the path and without.
            assert_eq!(observer.get("/v1/status").code, 200, "{what}");
            assert_eq!(observer.get(&format!("{path}/v1/status")).code, 200, "{what}");
        }
    }
}

#[test]
fn a_person_uses_the_pages_below_a_path_of_nginx() {
    let etcd = Etcd::single();
    etcd.store().put("/orchestrate/hosts/web-1", r#"{"format":1,"role":"web","since":1416300000}"#);
    let directory = tempfile::tempdir().expect("a directory");
    let [port] = free_ports();
    let base = format!("http://127.0.0.1:{port}/fleet");
    let store = format!("endpoints = {:?}", etcd.endpoints());
    let observer = Observer::start_with(&store, &format!("public_url = \"{base}/\"\n"));
    observer.wait_for_health("fresh");
    let sample = sample("nginx", "/fleet", &observer.address());
    let _proxy = start(directory.path(), "nginx", port, &sample);
    let browser = Browser::start();
    let follows = || browser.wait_for("it follows", "return document.body.dataset.followed === 'true'");
    browser.go(&format!("{base}/#t={}", observer.token()));
    browser.wait_for("the first page is shown", "return document.querySelector('#counts') !== null");
    follows();
    for (selector, address) in [
        ("nav a[href$='/rollouts']", "/rollouts"),
        ("nav a[href$='/services']", "/services"),
        ("nav a[href$='/events']", "/events"),
        ("nav a[href='/fleet/']", "/"),
    ] {
        browser.click(selector);
        let shown =
            format!("return location.href === '{base}{address}' && document.readyState === 'complete'");
        browser.wait_for(address, &shown);
        follows();
    }
    browser.click("#search");
    browser.press("web-1");
    browser.press(tests::browser::ENTER);
    browser.wait_for("the host", &format!("return location.href === '{base}/hosts/web-1'"));
    follows();
    // The style was loaded, and nothing was refused.
    let rules = browser.script("return document.styleSheets[0].cssRules.length > 10");
    assert_eq!(rules, Value::Bool(true));
    // Only the first page was asked for without the token.
    let unexpected: Vec<String> =
        browser.messages().into_iter().filter(|message| !message.contains("401 (Unauthorized)")).collect();
    assert_eq!(unexpected, Vec::<String>::new());
}

#[test]
fn a_load_balancer_checks_an_agent_without_a_name() {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    let directory = tempfile::tempdir().expect("a directory");
    let [port] = free_ports();
    let agent = host.http_port();
    // HAProxy sends a request of HTTP/1.0 without a Host header, if the settings name no other one.
    let backend = format!(
        "    default_backend agents\nbackend agents\n    mode http\n    option httpchk GET /ready\n    \
         server h1 127.0.0.1:{agent} check inter 100ms fall 1 rise 1\n"
    );
    let _proxy = start(directory.path(), "haproxy", port, &backend);
    let answer = || curl(&[&format!("http://127.0.0.1:{port}/ready")]);
    // HAProxy takes a server for good until its first check, so several checks have to pass.
    let mut in_a_row = 0;
    let stays = || {
        in_a_row = if answer().starts_with("HTTP/1.1 200") { in_a_row + 1 } else { 0 };
        (in_a_row >= 20).then_some(())
    };
    wait::until("HAProxy goes on to use the agent", stays, || answer() + &host.describe());
    let raw = |head: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", agent)).expect("connected");
        stream.set_read_timeout(Some(wait::DEADLINE)).expect("a limit");
        write!(stream, "GET /ready {head}\r\nConnection: close\r\n\r\n").expect("sent");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        line.split(' ').nth(1).map(str::to_owned)
    };
    assert_eq!(raw("HTTP/1.0").as_deref(), Some("200"));
    assert_eq!(raw("HTTP/1.0\r\nHost: evil.example").as_deref(), Some("403"));
    assert_eq!(raw("HTTP/1.1\r\nHost: evil.example").as_deref(), Some("403"));
}
