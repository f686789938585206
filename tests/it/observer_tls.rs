//! The observer for other machines: TLS, and tokens of which it knows only the digests.

use std::fmt::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tests::authority::Authority;
use tests::etcd::Etcd;
use tests::observer::Observer;
use tests::process::{binary, run};
use tests::wait;

const ANN: &str = "ann-0123456789abcdef0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef0123456789abcdef";

/// Writes the digests of tokens.
fn write_digests(path: &Path, tokens: &[&str]) {
    let mut text = "# who may look\n".to_owned();
    for (number, token) in tokens.iter().enumerate() {
        let output = run(&mut Command::new("sha256sum"), token);
        let hex = String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned();
        writeln!(text, "person-{number} {hex}").expect("memory");
    }
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o640)).expect("its mode");
}

/// Puts a certificate in the place of the one that an observer shows.
fn install(authority: &Authority, observer: &Path) {
    let tls = authority.server();
    for (from, to) in [(&tls.cert, "server.crt"), (&tls.key, "server.key")] {
        let new = observer.join("new");
        std::fs::copy(from, &new).expect("copied");
        std::fs::rename(&new, observer.join(to)).expect("in place");
    }
}

/// Runs curl for a path, with the certificate of an authority.
fn curl(observer: &Observer, authority: &Authority, (path, arguments): (&str, &[&str])) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20", "--include", "--cacert"]);
    command.arg(authority.path("ca.crt")).args(arguments);
    run(command.arg(format!("https://{}{path}", observer.address())), "")
}

/// Returns the code of an answer; 0 if there is none.
fn code(output: &Output) -> u16 {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

/// An observer on every address of the machine, with TLS and the tokens of two people.
fn start(etcd: &Etcd, authority: &Authority) -> (tempfile::TempDir, Observer) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    install(authority, directory.path());
    write_digests(&path("digests"), &[ANN, BOB]);
    let http = format!(
        "cert = {:?}\nkey = {:?}\ntoken_digests = {:?}\nnames = [\"fleet.example.org\"]\n",
        path("server.crt"),
        path("server.key"),
        path("digests")
    );
    let observer = Observer::start_with(&format!("endpoints = {:?}", etcd.endpoints()), &http);
    let settings = observer.path("observer.toml");
    let text = std::fs::read_to_string(&settings).expect("its settings");
    std::fs::write(&settings, text.replace("\"127.0.0.1:", "\"0.0.0.0:")).expect("written");
    (directory, observer.again())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[test]
fn other_machines_look_by_tls_and_each_token_ends_by_itself() {
    let etcd = Etcd::single();
    etcd.store().put("/current_version", "1");
    let authority = Authority::new();
    let (directory, observer) = start(&etcd, &authority);
    let ask = |path: &str, arguments: &[&str]| curl(&observer, &authority, (path, arguments));
    let shows = |token: &str| code(&ask("/v1/status", &["-H", &bearer(token)]));
    let is_shown = || Some(()).filter(|()| shows(ANN) == 200);
    wait::until("the fleet is shown", is_shown, || observer.log());
    assert_eq!((shows(BOB), shows("wrong"), code(&ask("/v1/status", &[]))), (200, 401, 401));
    // Nobody is answered by a name that is not the observer's, without TLS, or by one who knows another authority.
    let by_name =
        |name: &str| code(&ask("/v1/status", &["-H", &bearer(ANN), "-H", &format!("Host: {name}")]));
    assert_eq!((by_name("fleet.example.org"), by_name("evil.example")), (200, 421));
    let plain = run(Command::new("curl").arg("--silent").arg(format!("http://{}/", observer.address())), "");
    assert_ne!(plain.status.code(), Some(0), "{plain:?}");
    let foreign = curl(&observer, &Authority::new(), ("/v1/status", &["-H", &bearer(ANN)]));
    assert_eq!(foreign.status.code(), Some(60), "{foreign:?}");
    // The cookie goes nowhere but over TLS, and stands for the token of its owner.
    let signed_in = ask("/v1/session", &["-X", "POST", "-H", &bearer(BOB)]);
    let head = String::from_utf8_lossy(&signed_in.stdout).into_owned();
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().expect("its value"));
    let by_cookie = || code(&ask("/v1/status", &["-H", &cookie]));
    assert_eq!(by_cookie(), 200);
    let again = ask("/v1/session", &["-X", "POST", "-H", &cookie]);
    let head = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(code(&again) == 204 && !head.contains("set-cookie"), "a cookie leads to no new one: {head}");
    let metrics = ask("/metrics", &["-H", &bearer(ANN)]);
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("\norchestrate_observer_certificate_end_timestamp_seconds 1"), "{metrics}");
    // One who may look no longer is shown nothing more, and the others go on.
    let mut command = Command::new("curl");
    command.args(["--silent", "--no-buffer", "--cacert"]).arg(authority.path("ca.crt"));
    command.args(["-H", &bearer(BOB)]).arg(format!("https://{}/v1/stream", observer.address()));
    let log = directory.path().join("stream");
    let mut stream = tests::process::Running::start(&mut command, &log);
    let has_event =
        || Some(()).filter(|()| std::fs::read_to_string(&log).unwrap_or_default().contains("event: "));
    wait::until("the stream begins", has_event, || observer.log());
    write_digests(&directory.path().join("digests"), &[ANN]);
    wait::until("the stream ends", || stream.ended(), || observer.log());
    assert_eq!((shows(BOB), by_cookie(), shows(ANN)), (401, 401, 200));
}

#[test]
fn a_renewed_certificate_is_shown_and_one_that_is_wrong_is_not() {
    let etcd = Etcd::single();
    let (first, second) = (Authority::new(), Authority::new());
    let (directory, observer) = start(&etcd, &first);
    let is_shown = |authority: &Authority| {
        curl(&observer, authority, ("/v1/health", &["-H", &bearer(ANN)])).status.code() == Some(0)
    };
    assert!(is_shown(&first) && !is_shown(&second));
    std::fs::write(directory.path().join("server.key"), "broken").expect("written");
    let says_why = || Some(()).filter(|()| observer.log().contains("server.key: no key in PEM is in it"));
    wait::until_within(wait::DEADLINE * 2, "the log says what is wrong", says_why, || observer.log());
    assert!(is_shown(&first));
    install(&second, directory.path());
    let is_renewed = || Some(()).filter(|()| is_shown(&second));
    wait::until_within(wait::DEADLINE * 2, "the new one is shown", is_renewed, || observer.log());
    // It does not start with one that is wrong.
    let key = directory.path().join("server.key");
    let is_refused = |why: &str| {
        let mut command = Command::new(binary("orchestrate-observer"));
        let output = run(command.arg("--config").arg(observer.path("observer.toml")), "");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(why), "{message}");
    };
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).expect("its mode");
    is_refused("server.key: every user may read it");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("its mode");
    std::fs::write(&key, "broken").expect("written");
    is_refused("server.key: no key in PEM is in it");
}

#[test]
fn an_ended_certificate_stops_clients_and_not_the_observer() {
    let etcd = Etcd::single();
    let authority = Authority::new();
    let (directory, observer) = start(&etcd, &authority);
    let (cert, key) = authority.issue("ended", 0);
    std::fs::copy(cert, directory.path().join("server.crt")).expect("copied");
    std::fs::copy(key, directory.path().join("server.key")).expect("copied");
    let observer = observer.again();
    // It answers before it has logged that.
    let says_that = || {
        let log = observer.log();
        let says = |part: &str| log.contains(part);
        (says("server.crt\" ended") && says("it is the one that the observer shows")).then_some(())
    };
    wait::until("the log says that the certificate ended", says_that, || observer.log());
    let refused = curl(&observer, &authority, ("/v1/health", &["-H", &bearer(ANN)]));
    assert_eq!(refused.status.code(), Some(60), "{refused:?}");
    let trusting = curl(&observer, &authority, ("/v1/health", &["--insecure", "-H", &bearer(ANN)]));
    assert_ne!(code(&trusting), 0, "{trusting:?}");
}

#[test]
fn clients_that_never_say_hello_keep_nobody_out() {
    let etcd = Etcd::single();
    let authority = Authority::new();
    let (_directory, observer) = start(&etcd, &authority);
    // More than may be open at the same time.
    let silent: Vec<TcpStream> =
        (0..600).filter_map(|_| TcpStream::connect(observer.address()).ok()).collect();
    assert_eq!(silent.len(), 600);
    let is_answered = || {
        Some(()).filter(|()| code(&curl(&observer, &authority, ("/v1/health", &["-H", &bearer(ANN)]))) != 0)
    };
    wait::until_within(wait::DEADLINE * 2, "another client is answered", is_answered, || observer.log());
}
