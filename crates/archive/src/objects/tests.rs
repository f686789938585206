//! Objects in a directory.

use super::{Created, ObjectError, ObjectName, ObjectStore, ObjectStoreConfig};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Barrier;

fn store(root: &Path) -> ObjectStore {
    let url = format!("file://{}", root.display()).parse().expect("a URL");
    ObjectStore::open(ObjectStoreConfig::new(url)).expect("a store")
}

fn name(text: &str) -> ObjectName {
    text.parse().expect("a name")
}

fn read(store: &ObjectStore, text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = store.get(&name(text), 1000, &mut bytes).expect("an answer")?;
    assert_eq!(length, bytes.len() as u64);
    Some(bytes)
}

/// Returns the names of all files in a directory.
fn files(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect()
}

#[test]
fn an_object_is_created_once_and_never_replaced() {
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    assert_eq!(store.exists(&name("v1/a")), Ok(false));
    assert_eq!(read(&store, "v1/a"), None);
    assert_eq!(store.create(&name("v1/a"), b"first"), Ok(Created::Now));
    assert_eq!(store.create(&name("v1/a"), b"second"), Ok(Created::Existed));
    assert_eq!(store.exists(&name("v1/a")), Ok(true));
    assert_eq!(read(&store, "v1/a").unwrap(), b"first");
    assert_eq!(store.create(&name("v1/empty"), b""), Ok(Created::Now));
    assert_eq!(read(&store, "v1/empty").unwrap(), b"");
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("v1"), mode("v1/a")), (0o750, 0o640));
    assert_eq!(files(&root.path().join("v1")).len(), 2, "nothing else stays");
}

#[test]
fn objects_are_listed_replaced_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    let listed = || {
        let mut listed = store.list().expect("a list");
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        listed.into_iter().map(|object| (object.name.to_string(), object.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(listed(), []);
    store.create(&name("v1/a"), b"first").unwrap();
    store.replace(&name("v1/a"), b"second").unwrap();
    store.replace(&name("b"), b"").unwrap();
    // Uploads that are not complete, links and names that no object has are none.
    fs::write(root.path().join(".upload-1~"), "x").unwrap();
    fs::write(root.path().join("with space"), "x").unwrap();
    symlink(root.path().join("b"), root.path().join("link")).unwrap();
    symlink("/", root.path().join("directory")).unwrap();
    assert_eq!(listed(), [("b".into(), 0), ("v1/a".into(), 6)]);
    assert_eq!(read(&store, "v1/a").unwrap(), b"second");
    assert_eq!(files(&root.path().join("v1")), ["a"], "nothing else stays");
    for _ in 0..2 {
        store.remove(&name("v1/a")).unwrap();
    }
    store.remove(&name("v9/a")).unwrap();
    assert_eq!(listed(), [("b".into(), 0)]);
    // What is no object is neither replaced nor removed.
    assert!(store.replace(&name("link"), b"x").unwrap_err().to_string().contains("a symbolic link"));
    assert!(store.remove(&name("link")).unwrap_err().to_string().contains("a symbolic link"));
}

#[test]
fn a_file_is_stored_from_its_beginning() {
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"whole").unwrap();
    assert_eq!(store.create_file(&name("a"), &file), Ok(Created::Now));
    assert_eq!(read(&store, "a").unwrap(), b"whole");
    let error = store.create_file(&name("b"), &File::open("/dev/null").unwrap()).unwrap_err();
    assert!(error.to_string().contains("the file to upload is not a regular file"), "{error}");
}

#[test]
fn of_a_hundred_writers_one_creates_the_object() {
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    let start = Barrier::new(100);
    let created: Vec<Created> = std::thread::scope(|scope| {
        let write = |n: usize| {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                store.create(&name("at/once"), format!("writer {n}").as_bytes()).expect("an answer")
            })
        };
        let writers: Vec<_> = (0..100).map(write).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    let winners: Vec<usize> = (0..100).filter(|n| created[*n] == Created::Now).collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(read(&store, "at/once").unwrap(), format!("writer {}", winners[0]).as_bytes());
    assert_eq!(files(&root.path().join("at")), ["once"]);
}

#[test]
fn a_half_written_object_is_not_seen() {
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    // What a writer leaves behind that died.
    fs::write(root.path().join(".upload-00~"), "half").unwrap();
    assert!(".upload-00~".parse::<ObjectName>().is_err());
    assert_eq!(store.create(&name("a"), b"whole"), Ok(Created::Now));
    assert_eq!(read(&store, "a").unwrap(), b"whole");
}

#[test]
fn a_symbolic_link_below_the_root_is_refused() {
    let check = |prepare: fn(&Path, &Path), object: &str, part: &str| {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        prepare(root.path(), other.path());
        let before = files(other.path());
        let store = store(root.path());
        let refused = |error: ObjectError| {
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.is_permanent(), "{error}");
        };
        refused(store.create(&name(object), b"x").unwrap_err());
        refused(store.exists(&name(object)).unwrap_err());
        refused(store.get(&name(object), 10, &mut io::sink()).unwrap_err());
        assert_eq!(files(other.path()), before);
    };
    let to_directory = |root: &Path, other: &Path| symlink(other, root.join("d")).unwrap();
    check(to_directory, "d/a", "d is a symbolic link or no directory");
    check(to_directory, "d", "d is a symbolic link or no regular file");
    let to_file = |root: &Path, other: &Path| {
        fs::write(other.join("secret"), "x").unwrap();
        symlink(other.join("secret"), root.join("a")).unwrap();
    };
    check(to_file, "a", "a is a symbolic link or no regular file");
    let to_nothing = |root: &Path, other: &Path| symlink(other.join("new"), root.join("a")).unwrap();
    check(to_nothing, "a", "a is a symbolic link or no regular file");
    let file_above = |root: &Path, _: &Path| fs::write(root.join("d"), "x").unwrap();
    check(file_above, "d/a", "d is a symbolic link or no directory");
    let directory = |root: &Path, _: &Path| fs::create_dir(root.join("a")).unwrap();
    check(directory, "a", "a is a symbolic link or no regular file");
}

#[test]
fn an_object_that_is_too_large_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    store.create(&name("a"), &[7; 100]).unwrap();
    assert_eq!(store.get(&name("a"), 100, &mut io::sink()), Ok(Some(100)));
    let mut bytes = Vec::new();
    let error = store.get(&name("a"), 99, &mut bytes).unwrap_err();
    let url = format!("file://{}/a", root.path().display());
    assert_eq!(error.to_string(), format!("cannot get {url}: it has more than 99 bytes"));
    assert!(error.is_permanent() && bytes.is_empty());
}

#[test]
fn a_directory_that_is_not_there_is_not_created() {
    let root = tempfile::tempdir().unwrap();
    let store = store(&root.path().join("unmounted"));
    let check = |error: ObjectError| {
        assert!(error.to_string().contains("the directory of the store: No such file"), "{error}");
        assert!(error.is_permanent());
    };
    check(store.create(&name("a"), b"x").unwrap_err());
    check(store.exists(&name("a")).unwrap_err());
    check(store.get(&name("a"), 10, &mut io::sink()).unwrap_err());
}

#[test]
fn a_writer_that_fails_is_no_error_of_the_store() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(28))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path());
    store.create(&name("a"), b"x").unwrap();
    let error = store.get(&name("a"), 10, &mut Full).unwrap_err();
    assert!(error.to_string().contains("what takes the object: No space left"), "{error}");
}
