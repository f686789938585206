//! The stream of the observer, the cookie of a browser, and clients that take more than their share.

use rustix::process::Resource;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::observer::{Observer, ask};
use tests::wait;
use tokio::io::AsyncWriteExt;

/// An open stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    /// Sends a request with a method, a path and a header, and returns the answer with its head read.
    fn open(observer: &Observer, request: &str, header: (&str, &str)) -> (u16, String, Self) {
        let mut stream = TcpStream::connect(observer.address()).expect("it listens");
        stream.set_read_timeout(Some(wait::DEADLINE)).expect("a limit");
        let (name, value) = header;
        let (host, length) = (observer.address(), "Content-Length: 0");
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\n{length}\r\n{name}: {value}\r\n\r\n")
            .expect("sent");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("a line"), 0, "{head}");
        }
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
        (code, head, Self(reader))
    }

    /// Returns the id and the data of the next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<(String, Value)> {
        let (mut id, mut data) = (None, None);
        loop {
            let mut line = String::new();
            // A last chunk has no bytes.
            if self.0.read_line(&mut line).expect("a line") == 0 || line == "0\r\n" {
                return None;
            }
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).expect("JSON"));
            }
            if let (Some(id), Some(data)) = (&id, &data) {
                return Some((id.clone(), Value::clone(data)));
            }
        }
    }
}

/// Returns the memory of the process.
fn resident_kibibytes(observer: &Observer) -> u64 {
    let path = format!("/proc/{}/status", observer.process().pid().as_raw_nonzero());
    let status = std::fs::read_to_string(&path).expect("readable");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    line.expect("a number")
}

fn bearer(observer: &Observer) -> String {
    format!("Bearer {}", observer.token())
}

#[test]
fn a_stream_tells_each_change_and_ends_when_the_token_is_gone() {
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/current_version", "1");
    let observer = Observer::of(&etcd.endpoints());
    let token = bearer(&observer);
    let open = || Stream::open(&observer, "GET /v1/stream", ("Authorization", &token));
    let (code, head, mut stream) = open();
    assert_eq!(code, 200, "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{head}");
    let (first, data) = stream.next().expect("an event");
    assert_eq!((&data["state"], &data["problem"]), (&"fresh".into(), &Value::Null), "{data}");
    // The same is shown until something changes, also to who connects again.
    let (same, _) = stream.next().expect("an event");
    assert_eq!((&same, &open().2.next().expect("an event").0), (&first, &first));
    store.put("/current_version", "2");
    let revision = store.revision();
    let begun = Instant::now();
    let changed = loop {
        let (id, data) = stream.next().expect("an event");
        if data["revision"] == revision {
            break id;
        }
        assert!(begun.elapsed() < wait::DEADLINE, "{data}");
    };
    assert_ne!(changed, first);
    assert_eq!(observer.get("/v1/status").json()["revision"], revision, "the views show it");
    // A store that is away is seen as well, by a growing age.
    etcd.signal_member(0, rustix::process::Signal::STOP);
    let age =
        |stream: &mut Stream| stream.next().expect("an event").1["age_seconds"].as_f64().expect("an age");
    let begun = Instant::now();
    while age(&mut stream) < 4.0 {
        assert!(begun.elapsed() < wait::DEADLINE, "no old age is shown");
    }
    etcd.signal_member(0, rustix::process::Signal::CONT);
    std::fs::remove_file(observer.path("token")).expect("removed");
    let removed = Instant::now();
    while stream.next().is_some() {}
    assert!(removed.elapsed() < Duration::from_secs(20), "the stream ended after {:?}", removed.elapsed());
}

#[test]
fn a_browser_trades_the_token_for_a_cookie() {
    let etcd = Etcd::single();
    etcd.store().put("/current_version", "1");
    let observer = Observer::of(&etcd.endpoints());
    let token = bearer(&observer);
    let (code, head, _) = Stream::open(&observer, "POST /v1/session", ("Authorization", &token));
    assert_eq!(code, 204, "{head}");
    let cookie =
        head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a cookie");
    let code = |request: &str, header: (&str, &str)| Stream::open(&observer, request, header).0;
    assert_eq!(code("POST /v1/session", ("Authorization", "Bearer wrong")), 401);
    assert_eq!(code("GET /v1/status", ("Cookie", cookie)), 200);
    assert_eq!(code("GET /v1/stream", ("Cookie", cookie)), 200);
    assert_eq!(code("GET /v1/status", ("Cookie", &cookie[..cookie.len() - 1])), 401);
    // Nothing else is changed by a request, and the token is in no answer.
    assert_eq!(code("POST /v1/status", ("Cookie", cookie)), 405);
    assert_eq!(code("GET /v1/session", ("Cookie", cookie)), 405);
    assert!(!head.contains(&observer.token()), "{head}");
    // It outlives a restart, and ends with its token.
    let observer = observer.again();
    observer.wait_for_health("fresh");
    let code = || Stream::open(&observer, "GET /v1/status", ("Cookie", cookie)).0;
    assert_eq!(code(), 200);
    std::fs::write(observer.path("token"), "f".repeat(40)).expect("written");
    wait::until("the cookie ends", || (code() == 401).then_some(()), || observer.log());
}

#[test]
fn clients_that_take_more_than_their_share_neither_block_others_nor_cost_memory() {
    const CLIENTS: u64 = 10_000;
    let etcd = Etcd::single();
    etcd.store().put("/current_version", "1");
    let observer = Observer::of(&etcd.endpoints());
    let token = bearer(&observer);
    // As many streams as may be open, and one more.
    let streams: Vec<_> =
        (0..256).map(|_| Stream::open(&observer, "GET /v1/stream", ("Authorization", &token))).collect();
    assert!(streams.iter().all(|(code, ..)| *code == 200));
    let (code, head, mut refused) = Stream::open(&observer, "GET /v1/stream", ("Authorization", &token));
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).expect("a length");
    let mut why = vec![0; length];
    refused.0.read_exact(&mut why).expect("a reason");
    assert_eq!((code, String::from_utf8_lossy(&why).as_ref()), (503, "too many clients follow the stream\n"));
    let before = resident_kibibytes(&observer);
    // Connections whose requests never end. The kernel holds those that are not accepted yet, and then lets them wait.
    let mut files = rustix::process::getrlimit(Resource::Nofile);
    files.current = files.maximum;
    rustix::process::setrlimit(Resource::Nofile, files).expect("as many files as may be open");
    assert!(files.maximum.is_none_or(|most| most > CLIENTS + 500), "{files:?}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let sent = Arc::new(AtomicUsize::new(0));
    for _ in 0..CLIENTS {
        let (address, sent) = (observer.address().to_owned(), sent.clone());
        runtime.spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected at last");
            // It may be closed before.
            let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: ").await;
            sent.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        });
    }
    let many = || Some(()).filter(|()| sent.load(Ordering::Relaxed) > 1000);
    wait::until("many are connected", many, || observer.log());
    // One of so many may be turned away, and tries again.
    let headers = [("Host", observer.address()), ("Authorization", token.clone())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answered =
        || ask(&observer.address(), "/v1/health", &headers).ok().filter(|answer| answer.code == 200);
    wait::until_within(wait::DEADLINE * 2, "another client is answered", answered, || observer.log());
    let after = resident_kibibytes(&observer);
    assert!(after < before + 64 * 1024, "{before} KiB, then {after} KiB");
    // Those that follow the stream still do.
    let (_, _, mut first) = streams.into_iter().next().expect("one");
    assert!(first.next().is_some());
}
