//! The client for object stores with a real S3 server.

use archive::objects::{Created, Credentials, ObjectError, ObjectName, ObjectStore};
use std::io::{self, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tests::object_store::{Behaviour, KEY_ID, ObjectServer, SECRET};

/// Length of the largest bundle, in bytes.
const LARGE: usize = 16 * 1024 * 1024;

fn name(text: &str) -> ObjectName {
    text.parse().expect("a name")
}

fn read(store: &ObjectStore, text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = store.get(&name(text), LARGE as u64, &mut bytes).expect("an answer")?;
    assert_eq!(length, bytes.len() as u64);
    Some(bytes)
}

/// Lets a hundred writers create one object, and returns what each found.
fn create_at_once(store: &ObjectStore) -> Vec<Created> {
    let start = Barrier::new(100);
    std::thread::scope(|scope| {
        let write = |n: usize| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                store.create(&name("at-once"), format!("writer {n}").as_bytes()).expect("an answer")
            })
        };
        let writers: Vec<_> = (0..100).map(write).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    })
}

#[test]
fn of_a_hundred_writers_one_creates_the_object() {
    let server = ObjectServer::start();
    let store = server.store("site");
    let created = create_at_once(&store);
    let winners: Vec<usize> = (0..100).filter(|n| created[*n] == Created::Now).collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(read(&store, "at-once").unwrap(), format!("writer {}", winners[0]).as_bytes());
    assert_eq!(server.count_of("PUT", "site/at-once"), 100);
}

#[test]
fn the_server_alone_lets_several_writers_create_one_object() {
    // When this fails, s3s-fs has become atomic, and the helper need not serialise creates any more.
    let server = ObjectServer::start();
    server.serialise_creates(false);
    let has_several = (0..50).any(|round| {
        let created = create_at_once(&server.store(&format!("round-{round}")));
        created.iter().filter(|created| **created == Created::Now).count() > 1
    });
    assert!(has_several, "one winner in each of 50 rounds");
}

#[test]
fn a_list_has_every_object_below_its_prefix_however_many_pages_it_takes() {
    let server = ObjectServer::start();
    let (store, whole) = (server.store("site"), server.store(""));
    let names = |store: &ObjectStore| {
        let mut listed = store.list().expect("a list");
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        listed.into_iter().map(|object| (object.name.to_string(), object.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(names(&store), []);
    server.store("other").create(&name("a"), b"abc").expect("created");
    server.store("site2").create(&name("a"), b"abc").expect("created");
    let directory = server.file_of("site/many");
    std::fs::create_dir_all(&directory).expect("a directory");
    // A page has at most 1,000 keys.
    let mut expected = Vec::new();
    for n in 0..2500 {
        std::fs::write(directory.join(format!("{n:04}")), "12").expect("written");
        expected.push((format!("many/{n:04}"), 2));
    }
    assert_eq!(names(&store), expected);
    assert_eq!(names(&whole).len(), 2502);
    store.remove(&name("many/0000")).expect("removed");
    store.remove(&name("many/0000")).expect("it is not there, which is right");
    store.replace(&name("many/0001"), b"other").expect("replaced");
    expected.remove(0);
    expected[0].1 = 5;
    assert_eq!(names(&store), expected);
    assert_eq!(read(&store, "many/0001").unwrap(), b"other");
    server.behave(Behaviour::Refuse);
    for error in [
        store.list().unwrap_err(),
        store.remove(&name("a")).unwrap_err(),
        store.replace(&name("a"), b"x").unwrap_err(),
    ] {
        assert_eq!(error.status(), Some(403), "{error}");
    }
}

#[test]
fn what_is_stored_is_what_is_read() {
    let server = ObjectServer::start();
    let store = server.store("site/prod");
    assert_eq!(read(&store, "v1/a"), None);
    assert_eq!(store.exists(&name("v1/a")), Ok(false));
    let mut file = tempfile::tempfile().expect("a file");
    let bytes: Vec<u8> = (0..LARGE).map(|n| (n * 31 / 7) as u8).collect();
    file.write_all(&bytes).expect("written");
    assert_eq!(store.create_file(&name("v1/a"), &file), Ok(Created::Now));
    assert_eq!(store.exists(&name("v1/a")), Ok(true));
    assert!(read(&store, "v1/a").unwrap() == bytes, "16 MiB differ");
    assert!(std::fs::read(server.file_of("site/prod/v1/a")).expect("a file") == bytes, "16 MiB differ");
    // The second does not replace the first.
    file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(b"other")).expect("written");
    assert_eq!(store.create_file(&name("v1/a"), &file), Ok(Created::Existed));
    assert_eq!(store.create(&name("v1/a"), b"other"), Ok(Created::Existed));
    assert!(read(&store, "v1/a").unwrap() == bytes, "16 MiB differ");
    // Names with every character that is allowed, and an object without bytes.
    assert_eq!(store.create(&name("A_z-0.9+x/empty"), b""), Ok(Created::Now));
    assert_eq!(read(&store, "A_z-0.9+x/empty").unwrap(), b"");
    assert_eq!((server.count("PUT"), server.count("HEAD"), server.count("GET")), (4, 2, 4));
}

#[test]
fn a_store_without_a_prefix_is_the_whole_bucket() {
    let server = ObjectServer::start();
    assert_eq!(server.store("").create(&name("site/a"), b"x"), Ok(Created::Now));
    assert_eq!(read(&server.store("site"), "a").unwrap(), b"x");
}

#[test]
fn an_object_that_is_too_large_is_not_read() {
    let server = ObjectServer::start();
    let store = server.store("site");
    store.create(&name("a"), &[7; 100]).expect("created");
    assert_eq!(store.get(&name("a"), 100, &mut io::sink()), Ok(Some(100)));
    let error = store.get(&name("a"), 99, &mut io::sink()).unwrap_err();
    assert_eq!(error.to_string(), "cannot get s3://bundles/site/a: it has more than 99 bytes");
    assert!(error.is_permanent());
}

/// Checks what each call says that cannot succeed. An answer to HEAD has no code.
fn check_refused(store: &ObjectStore, status: u16, code: Option<&str>, is_permanent: bool) {
    let check = |error: ObjectError, code: Option<&str>| {
        assert_eq!((error.status(), error.code()), (Some(status), code), "{error}");
        assert_eq!(error.is_permanent(), is_permanent, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&store.url().join(&name("a"))), "{shown}");
        for secret in [SECRET, KEY_ID, "wrong", "X-Amz", "Signature="] {
            assert!(!shown.contains(secret), "{shown}");
        }
    };
    check(store.create(&name("a"), b"x").unwrap_err(), code);
    check(store.create_file(&name("a"), &large_file()).unwrap_err(), code);
    check(store.exists(&name("a")).unwrap_err(), None);
    check(store.get(&name("a"), 10, &mut io::sink()).unwrap_err(), code);
}

fn large_file() -> std::fs::File {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(LARGE as u64).expect("16 MiB");
    file
}

#[test]
fn a_refusal_names_the_code_and_no_secret() {
    let server = ObjectServer::start();
    let with = |credentials: Option<Credentials>| {
        let mut config = server.config("site");
        config.credentials = credentials;
        ObjectStore::open(config).expect("a store")
    };
    let wrong_secret = with(Some(Credentials::new(KEY_ID, "wrong")));
    check_refused(&wrong_secret, 403, Some("SignatureDoesNotMatch"), true);
    let wrong_key = with(Some(Credentials::new("wrong", SECRET)));
    // S3 says InvalidAccessKeyId.
    check_refused(&wrong_key, 403, Some("NotSignedUp"), true);
    check_refused(&with(None), 403, Some("AccessDenied"), true);
    server.behave(Behaviour::Refuse);
    check_refused(&server.store("site"), 403, Some("AccessDenied"), true);
    assert!(!server.directory().join("site").exists(), "nothing was stored");
    assert!(!format!("{wrong_secret:?}").contains("wrong"));
}

#[test]
fn a_server_that_cannot_now_is_worth_another_try() {
    let server = ObjectServer::start();
    let store = server.store("site");
    server.behave(Behaviour::Unavailable);
    check_refused(&store, 503, Some("SlowDown"), false);
    server.behave(Behaviour::Full);
    check_refused(&store, 507, Some("XMinioStorageFull"), false);
    server.behave(Behaviour::Serve);
    assert_eq!(store.create(&name("a"), b"x"), Ok(Created::Now));
}

#[test]
fn an_upload_that_conflicts_is_repeated() {
    let server = ObjectServer::start();
    let store = server.store("site");
    server.behave_for(2, Behaviour::Conflict);
    assert_eq!(store.create_file(&name("a"), &large_file()), Ok(Created::Now));
    assert_eq!(read(&store, "a").map(|bytes| bytes.len()), Some(LARGE));
    server.behave(Behaviour::Conflict);
    let error = store.create(&name("b"), b"x").unwrap_err();
    assert_eq!((error.code(), error.is_permanent()), (Some("ConditionalRequestConflict"), false));
    assert_eq!((server.count_of("PUT", "site/a"), server.count_of("PUT", "site/b")), (3, 3));
}

#[test]
fn a_missing_bucket_is_no_missing_object() {
    let server = ObjectServer::start();
    let mut config = server.config("site");
    config.url = "s3://no-such-bucket/site".parse().expect("a URL");
    let store = ObjectStore::open(config).expect("a store");
    let check = |error: ObjectError| {
        assert_eq!((error.status(), error.code()), (Some(404), Some("NoSuchBucket")), "{error}");
        assert!(error.is_permanent());
    };
    check(store.get(&name("a"), 10, &mut io::sink()).unwrap_err());
    check(store.create(&name("a"), b"x").unwrap_err());
}

#[test]
fn a_server_that_hangs_or_is_away_is_given_up_in_time() {
    let server = ObjectServer::start();
    let mut config = server.config("site");
    config.timeout = Duration::from_secs(1);
    let store = ObjectStore::open(config.clone()).expect("a store");
    let check = |store: &ObjectStore| {
        let in_time = |call: &dyn Fn() -> ObjectError| {
            let start = Instant::now();
            let error = call();
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {error}", start.elapsed());
            assert!(!error.is_permanent() && error.status().is_none(), "{error}");
        };
        in_time(&|| store.create(&name("a"), b"x").unwrap_err());
        in_time(&|| store.create_file(&name("a"), &large_file()).unwrap_err());
        in_time(&|| store.exists(&name("a")).unwrap_err());
        in_time(&|| store.get(&name("a"), 10, &mut io::sink()).unwrap_err());
    };
    server.behave(Behaviour::Hang);
    check(&store);
    server.behave(Behaviour::Slow(Duration::from_secs(3)));
    check(&store);
    // One that is slow, but not too slow, is waited for.
    server.behave(Behaviour::Slow(Duration::from_millis(100)));
    assert_eq!(server.store("site").create(&name("b"), b"x"), Ok(Created::Now));
    // Nothing listens at a port that was just given back.
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    config.endpoint = Some(format!("http://{}", listener.local_addr().expect("an address")));
    drop(listener);
    check(&ObjectStore::open(config).expect("a store"));
}
