//! The first command of the README, and the same demo with Puppet.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_demo_sees_everything_that_it_shows_and_leaves_nothing() {
    check("demo");
}

#[test]
fn the_demo_with_puppet_sees_everything_that_it_shows_and_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        return tests::skip(
            "demo::the_demo_with_puppet_sees_everything_that_it_shows_and_leaves_nothing",
            "Puppet gives files to root",
        );
    }
    check("demo-puppet");
}

fn check(script: &str) {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(repository.join("packaging/scripts").join(script));
    command.current_dir(&repository).env("TMPDIR", directory.path()).env("ORCHESTRATE_IS_BUILT", "1");
    let output = command.output().expect("the demo runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.ends_with("Everything was seen.\u{1b}[0m\n"), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0, "files stay");
    let marker = directory.path().display().to_string();
    let lives = std::fs::read_dir("/proc").expect("processes").flatten().filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&marker)
    });
    assert_eq!(lives.count(), 0, "processes stay");
}
