//! Settings and errors of a bucket, and answers that no server of S3 gives.

use super::*;
use crate::objects::{ObjectError, ObjectStore, Operation};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};

fn config() -> ObjectStoreConfig {
    let mut config = ObjectStoreConfig::new("s3://bundles/site".parse().unwrap());
    config.endpoint = Some("http://127.0.0.1:9000".to_owned());
    config
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let check = |change: fn(&mut ObjectStoreConfig), part: &str| {
        let mut config = config();
        config.credentials = Some(Credentials::new("id", "canary-secret"));
        change(&mut config);
        let error = ObjectStore::open(config).unwrap_err();
        assert!(error.to_string().starts_with("cannot use s3://bundles/site: "), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.is_permanent(), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    };
    check(|c| c.endpoint = None, "S3 needs an endpoint");
    check(|c| c.endpoint = Some("s3.example.com".into()), "must be https://HOST");
    check(|c| c.endpoint = Some("ftp://s3.example.com".into()), "must be https://HOST");
    check(|c| c.endpoint = Some("https://".into()), "must be https://HOST");
    check(|c| c.endpoint = Some("https://host:port".into()), "must be https://HOST");
    check(|c| c.endpoint = Some("http://s3.example.com".into()), "write https://");
    check(|c| c.endpoint = Some("http://localhost.example.com".into()), "write https://");
    check(|c| c.endpoint = Some("http://192.0.2.1:9000".into()), "write https://");
    check(|c| c.endpoint = Some("https://id:canary@host".into()), "no user, password");
    check(|c| c.endpoint = Some("https://host/?canary".into()), "query");
    check(|c| c.endpoint = Some("http://127.0.0.1#@host".into()), "fragment");
    check(|c| c.region = String::new(), "the region must have");
    check(|c| c.region = "eu/west".into(), "the region must have");
    check(|c| c.credentials = Some(Credentials::new("", "canary")), "is one empty");
    check(|c| c.credentials = Some(Credentials::new("id", "canary\n")), "a line end");
    check(|c| c.timeout = Duration::ZERO, "longer than zero");
    check(
        |c| {
            c.endpoint = Some("https://127.0.0.1:9000".into());
            c.ca = Some("/nonexistent/ca.pem".into());
        },
        "the certificates in /nonexistent/ca.pem: No such file",
    );
    check(
        |c| {
            c.endpoint = Some("https://127.0.0.1:9000".into());
            c.ca = Some("/dev/null".into());
        },
        "the certificates in /dev/null: there is none",
    );
}

#[test]
fn plain_text_is_for_this_machine() {
    let check = |endpoint: &str| {
        let mut config = config();
        config.endpoint = Some(endpoint.to_owned());
        ObjectStore::open(config).unwrap();
    };
    check("http://127.0.0.1:9000");
    check("http://localhost:9000/");
    check("http://[::1]:9000/s3");
}

#[test]
fn a_signature_is_cut_off() {
    let check = |text: &str, shown: &str| assert_eq!(without_signature(text), shown);
    check("bad uri: http://h/b/k?X-Amz-Algorithm=A&X-Amz-Signature=00", "bad uri: http://h/b/k?…");
    check("connection failed", "connection failed");
}

#[test]
fn a_bad_certificate_is_permanent_and_a_broken_connection_is_not() {
    let check = |error: ureq::Error, permanent: bool| {
        let problem = problem_of(error);
        let shown = problem.to_string();
        let error = ObjectError::new(Operation::Get, "s3://bundles/a".to_owned(), problem);
        assert_eq!(error.is_permanent(), permanent, "{shown}");
    };
    let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    check(ureq::Error::Rustls(unknown()), true);
    check(ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, unknown())), true);
    check(ureq::Error::Rustls(rustls::Error::HandshakeNotComplete), false);
    check(ureq::Error::Io(io::ErrorKind::ConnectionRefused.into()), false);
    check(ureq::Error::Io(io::ErrorKind::TimedOut.into()), false);
    check(ureq::Error::HostNotFound, false);
    check(ureq::Error::ConnectionFailed, false);
}

/// Starts a server that answers each request with this text and then does nothing, or closes the connection. Returns a client
/// with a time limit of one second.
fn store_with_answers(answer: &'static str, closes: bool) -> ObjectStore {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut config = config();
    config.endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    config.timeout = Duration::from_secs(1);
    std::thread::spawn(move || {
        let mut open: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming().flatten() {
            let head = BufReader::new(&stream).lines();
            head.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).for_each(drop);
            (&stream).write_all(answer.as_bytes()).unwrap();
            if !closes {
                open.push(stream);
            }
        }
    });
    ObjectStore::open(config).unwrap()
}

#[test]
fn an_answer_that_is_not_whole_is_worth_another_try() {
    let check = |answer: &'static str, closes: bool, part: &str| {
        let store = store_with_answers(answer, closes);
        let start = Instant::now();
        let error = store.get(&"a".parse().unwrap(), 100, &mut io::sink()).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {error}", start.elapsed());
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.is_permanent(), "{error}");
    };
    check("", false, "it took too long");
    check("", true, "");
    check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", false, "it took too long");
    check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", true, "");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", true, "");
    check("SSH-2.0-OpenSSH\r\n", true, "");
}

#[test]
fn an_answer_that_is_none_of_s3_is_an_error() {
    let check = |answer: &'static str, status: u16| {
        let store = store_with_answers(answer, true);
        let error = store.get(&"a".parse().unwrap(), 100, &mut io::sink()).unwrap_err();
        assert_eq!((error.status(), error.is_permanent()), (Some(status), true), "{error}");
        let error = store.create(&"a".parse().unwrap(), b"x").unwrap_err();
        assert_eq!((error.status(), error.is_permanent()), (Some(status), true), "{error}");
    };
    // A server of web pages, a redirect, which is not followed, and one that does not know conditional requests.
    check("HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>", 404);
    check(
        "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        301,
    );
    check("HTTP/1.1 501 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 501);
}

#[test]
fn a_server_that_does_not_know_the_condition_of_a_creation_is_asked_first() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut config = config();
    config.endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    config.timeout = Duration::from_secs(5);
    std::thread::spawn(move || {
        let mut exists = false;
        for stream in listener.incoming().flatten() {
            let head: Vec<String> = BufReader::new(&stream)
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let is_conditional =
                head.iter().any(|line| line.to_ascii_lowercase().starts_with("if-none-match"));
            let status = match head[0].split(' ').next() {
                Some("PUT") if is_conditional => "501 Not Implemented",
                Some("PUT") => {
                    exists = true;
                    "200 OK"
                }
                Some("HEAD") if exists => "200 OK",
                _ => "404 Not Found",
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    let store = ObjectStore::open(config).unwrap();
    assert_eq!(store.create(&"a".parse().unwrap(), b"x"), Ok(Created::Now));
    assert_eq!(store.create(&"a".parse().unwrap(), b"y"), Ok(Created::Existed));
}

#[test]
fn an_object_of_unknown_length_that_is_too_large_is_given_up() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n0\r\n\r\n";
    let store = store_with_answers(answer, true);
    assert_eq!(store.get(&"a".parse().unwrap(), 6, &mut io::sink()), Ok(Some(6)));
    let error = store.get(&"a".parse().unwrap(), 5, &mut io::sink()).unwrap_err();
    assert!(error.to_string().ends_with("it has more than 5 bytes"), "{error}");
}
