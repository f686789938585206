use super::contents::{ABOUT, CONTENTS};
use super::*;
use crate::{CUT_LINE, Cut, Redactor};
use schema::codec;
use schema::names::{StepName, Token};
use schema::records::Report;
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use schema::verdict::{Failure, HostFailure, HostVerdict};
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn about() -> About {
    serde_json::from_value(serde_json::json!({
        "format": 1, "program": "0.1.0", "host": "web1", "version": "2", "rollout": { "epoch": 1, "revision": 5 }, "attempt": 1,
        "failed_at": 1_800_000_000, "cause": { "fingerprint": "f1-0123456789ab", "line": "a line" },
    }))
    .unwrap()
}

/// Returns a bundle with these parts.
fn bundle(parts: &[(&str, &[u8])], redactor: &Redactor) -> Vec<u8> {
    let mut writer = BundleWriter::new(Vec::new(), &about(), redactor).unwrap();
    for (name, content) in parts {
        writer.add(name, *content, Cut::default()).unwrap();
    }
    writer.finish().unwrap()
}

/// Unpacks into a new directory. Returns the files, with their paths, or the error.
fn unpacked(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, UnpackError> {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("new");
    let mut files = BTreeMap::new();
    match unpack(Cursor::new(bytes), &into) {
        Ok(found) => assert_eq!(found, about()),
        Err(error) => {
            assert!(!into.exists(), "something is left after: {error}");
            return Err(error);
        }
    }
    assert_eq!(into.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let mut waiting = vec![into.clone()];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            let name = path.strip_prefix(&into).unwrap().display().to_string();
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
    Ok(files)
}

fn contents(files: &BTreeMap<String, Vec<u8>>) -> Contents {
    serde_json::from_slice(&files[CONTENTS]).unwrap()
}

#[test]
fn what_is_packed_is_unpacked_without_its_secrets() {
    let redactor = Redactor::new([b"canary-1".as_slice()]);
    let parts: [(&str, &[u8]); 3] = [
        ("report.json", b"{}"),
        ("steps/1-apply-install.log", b"it is canary-1\n"),
        ("files/etc/app.conf", b""),
    ];
    let files = unpacked(&bundle(&parts, &redactor)).unwrap();
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, [ABOUT, CONTENTS, "files/etc/app.conf", "report.json", "steps/1-apply-install.log"]);
    assert_eq!(files["steps/1-apply-install.log"], b"it is ***\n");
    let parts: Vec<(String, u64, bool)> =
        contents(&files).parts.into_iter().map(|part| (part.name, part.bytes, part.is_cut)).collect();
    let part = |name: &str, bytes| (name.to_owned(), bytes, false);
    assert_eq!(
        parts,
        [part("report.json", 2), part("steps/1-apply-install.log", 10), part("files/etc/app.conf", 0)]
    );
}

#[test]
fn a_bundle_is_read_whatever_its_secrets_are() {
    let redactor = Redactor::new([b"web1".as_slice(), b"host", b"1800", b"line"]);
    let mut writer = BundleWriter::new(Vec::new(), &about(), &redactor).unwrap();
    let report = serde_json::json!({"log": ["password=\"a b\" of web1", 1], "host": {"x": "web1"}});
    writer.add_json("report.json", &report).unwrap();
    for name in ["report.json", "a\nb", "../a"] {
        writer.add(name, &b"x"[..], Cut::default()).unwrap();
    }
    writer.add("binary", std::io::repeat(0xff), Cut::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("new");
    let found = unpack(Cursor::new(writer.finish().unwrap()), &into).unwrap();
    assert_eq!((found.host.as_str(), found.cause.line.as_str()), ("web1", "a ***"));
    let read = |name: &str| std::fs::read_to_string(into.join(name)).unwrap();
    let report: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(report, serde_json::json!({"log": ["password=\"***\" of ***", 1], "host": {"x": "***"}}));
    let contents: Contents = serde_json::from_str(&read(CONTENTS)).unwrap();
    assert_eq!(contents.left_out.len(), 3, "{:?}", contents.left_out);
    let binary = &contents.parts[1];
    assert!(binary.is_cut && (PART_MAX_BYTES - 3..=PART_MAX_BYTES).contains(&binary.bytes), "{binary:?}");
}

#[test]
fn a_long_part_is_cut_and_what_does_not_fit_is_left_out_with_its_reason() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone, canary-1"))
        }
    }
    let redactor = Redactor::new([b"canary-1".as_slice()]);
    let mut writer = BundleWriter::new(Vec::new(), &about(), &redactor).unwrap();
    writer.add("broken.log", Broken, Cut::default()).unwrap();
    writer.add(&format!("files/{}", "x".repeat(300)), &b""[..], Cut::default()).unwrap();
    for n in 0..5 {
        writer.add(&format!("{n}.log"), std::io::repeat(b'a'), Cut::default()).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let Contents { parts, left_out } = contents(&unpacked(&bytes).unwrap());
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), BUNDLE_MAX_BYTES);
    assert!(parts.iter().all(|part| part.is_cut && part.bytes == PART_MAX_BYTES), "{parts:?}");
    let why = |n: usize| left_out[n].why.as_str();
    assert_eq!((left_out.len(), why(0), why(2)), (3, "the disk is gone, ***", "the bundle is full"));
}

/// Returns an archive that begins as a bundle does, and then has what `add` adds.
fn archive(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    file(&mut builder, ABOUT, tar::EntryType::Regular, &serde_json::to_vec(&about()).unwrap());
    add(&mut builder);
    zstd::bulk::compress(&builder.into_inner().unwrap(), 1).unwrap()
}

fn file(builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    // The library refuses some of these paths.
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o4777);
    if kind.is_symlink() || kind.is_hard_link() {
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

#[test]
fn what_would_do_harm_is_refused_and_nothing_of_it_is_left() {
    use tar::EntryType as Kind;
    let check = |name: &str, kind: Kind, expected: &str| {
        let error = unpacked(&archive(|builder| file(builder, name, kind, b"x"))).unwrap_err().to_string();
        assert!(error.contains(expected), "{name:?} {kind:?}: {error}");
    };
    for kind in [
        Kind::Symlink,
        Kind::Link,
        Kind::Char,
        Kind::Block,
        Kind::Fifo,
        Kind::Directory,
        Kind::Continuous,
        Kind::GNULongName,
        Kind::GNUSparse,
        Kind::XHeader,
        Kind::XGlobalHeader,
    ] {
        check("a", kind, "is no regular file");
    }
    for name in ["../a", "a/../../b", "/etc/a", "..", "./a/..", ""] {
        check(name, Kind::Regular, "leads out of the directory");
    }
    check("a\u{1b}[2J", Kind::Regular, "has control characters");
    check(ABOUT, Kind::Regular, "exists");
    check("bundle.json/a", Kind::Regular, "exists");
}

#[test]
fn a_bundle_that_would_fill_the_disk_is_refused() {
    let zeros =
        || zstd::stream::read::Encoder::new(std::io::repeat(0).take(UNPACKED_MAX_BYTES + 1), 1).unwrap();
    let mut bomb = Vec::new();
    let mut header = tar::Header::new_ustar();
    header.set_path(ABOUT).unwrap();
    header.set_size(UNPACKED_MAX_BYTES);
    header.set_cksum();
    zstd::stream::read::Encoder::new(header.as_bytes().chain(std::io::repeat(0).take(UNPACKED_MAX_BYTES)), 1)
        .unwrap()
        .read_to_end(&mut bomb)
        .unwrap();
    let error = unpacked(&bomb).unwrap_err().to_string();
    assert!(error.contains("all is more than 256 MiB"), "{error}");
    let mut nothing = Vec::new();
    zeros().read_to_end(&mut nothing).unwrap();
    assert!(unpacked(&nothing).unwrap_err().to_string().contains("it has no files"));
    let many = archive(|builder| {
        (0..UNPACKED_MAX_FILES).for_each(|n| file(builder, &n.to_string(), tar::EntryType::Regular, b""));
    });
    assert!(unpacked(&many).unwrap_err().to_string().contains("more than 1000 files"));
}

#[test]
fn what_is_no_bundle_is_refused_by_name() {
    let check = |bytes: &[u8], expected: &str| {
        let error = unpacked(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let first = |name: &str, content: &[u8]| {
        let mut builder = tar::Builder::new(Vec::new());
        file(&mut builder, name, tar::EntryType::Regular, content);
        zstd::bulk::compress(&builder.into_inner().unwrap(), 1).unwrap()
    };
    check(b"", "this is not a bundle");
    check(b"no archive", "this is not a bundle");
    check(&first("a", b""), "begins with a, not with bundle.json");
    check(&first(ABOUT, b"{"), "bundle.json: EOF");
    check(&first(ABOUT, b"{}"), "bundle.json: missing field");
    check(&first(ABOUT, b"{\"format\": 2}"), "it has format 2");
    let whole = bundle(&[("a", b"some text")], &Redactor::default());
    for end in 0..whole.len() {
        unpacked(&whole[..end]).expect_err(&format!("the first {end} bytes of {}", whole.len()));
    }
}

#[test]
fn a_directory_that_exists_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "x").unwrap();
    let whole = bundle(&[], &Redactor::default());
    unpack(Cursor::new(whole), directory.path()).unwrap_err();
    assert!(Path::new(&directory.path().join("mine")).exists());
}

/// Unpacks a bundle with these parts, and returns the run of it that failed.
fn failed_run(parts: &[(&str, &[u8])]) -> Option<FailedRun> {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("new");
    unpack(Cursor::new(bundle(parts, &Redactor::default())), &into).unwrap();
    FailedRun::read(&into).unwrap()
}

#[test]
fn the_run_that_failed_is_the_last_one_of_the_step_that_the_report_blames() {
    let end = StepEnd::Exited { code: 3 };
    let failure = Failure::of(StepPhase::Apply, StepName::new("b-c").unwrap(), end);
    let verdict = HostVerdict::Failed(HostFailure { version: None, failure, suspect: true });
    let report = Report { verdict, ..Report::idle(EpochSeconds(0), Token::new("w").unwrap()) };
    let report = codec::write(&report);
    let blaming = ("report.json", report.as_bytes());
    let runs: [(&str, &[u8]); 4] = [
        ("steps/09-apply-b-c.end", b"exited with code 3"),
        ("steps/10-apply-b-c.end", b"exited with code 3"),
        ("steps/99-apply-a.end", b""),
        ("steps/100-on_suspect-a.end", b"exited with code 0"),
    ];
    let name = |more: &[(&str, &[u8])], runs: &[(&str, &[u8])]| {
        failed_run(&[more, runs].concat()).map(|run| run.name.to_string())
    };
    for (parts, expected) in [
        (name(&[blaming], &runs), Some("10-apply-b-c")),
        (name(&[], &runs), Some("100-on_suspect-a")),
        (name(&[("report.json", b"{")], &runs[..3]), Some("99-apply-a")),
        (name(&[blaming], &runs[2..]), Some("100-on_suspect-a")),
        (
            name(
                &[blaming],
                &[("steps/1-other-a.end", b""), ("steps/x-apply-a.end", b""), ("steps/apply", b"")],
            ),
            None,
        ),
        (name(&[], &[]), None),
    ] {
        assert_eq!(parts.as_deref(), expected);
    }
}

#[test]
fn the_output_of_a_run_is_whole_or_says_what_is_missing() {
    let output = |parts: &[(&str, &[u8])]| {
        let run =
            failed_run(&[&[("steps/01-apply-a.end", &b"exited with code 3"[..])], parts].concat()).unwrap();
        assert_eq!(run.end, "exited with code 3");
        (run.output, run.is_cut)
    };
    let log = ("steps/01-apply-a.log", &b"first\n"[..]);
    let last = ("steps/01-apply-a.last.log", &b"last\n"[..]);
    assert_eq!(output(&[log]), (Ok("first\n".into()), false));
    assert_eq!(output(&[log, last]), (Ok(format!("first\n{CUT_LINE}last\n")), false));
    assert_eq!(output(&[last]), (Err("the bundle does not say why".into()), false));
    let long = vec![b'a'; usize::try_from(PART_MAX_BYTES).unwrap() + 1];
    let (whole, is_cut) = output(&[("steps/01-apply-a.log", &long)]);
    assert_eq!((whole.unwrap().len() as u64, is_cut), (PART_MAX_BYTES, true));
    let redactor = Redactor::default();
    let mut writer = BundleWriter::new(Vec::new(), &about(), &redactor).unwrap();
    writer.add("steps/01-apply-a.end", &b""[..], Cut::default()).unwrap();
    writer.leave_out("steps/01-apply-a.log", "the disk is gone");
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("new");
    unpack(Cursor::new(writer.finish().unwrap()), &into).unwrap();
    let run = FailedRun::read(&into).unwrap().unwrap();
    assert_eq!(run.output, Err("the disk is gone".into()));
}
