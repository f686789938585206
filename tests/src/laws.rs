//! The recorder and the checker of the laws of rollouts: programs in Python that share no code with
//! the rest.

use crate::etcd::Etcd;
use crate::process::{Running, run};
use crate::wait;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running recorder of one history of a store.
pub struct Laws {
    directory: tempfile::TempDir,
    recorder: Running,
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("checker/rollout_laws.py")
}

impl Laws {
    /// Starts to record every revision of a real etcd, from the first one on.
    pub fn start(etcd: &Etcd) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("python3");
        command.arg("-B").arg(program()).arg("record").arg(etcd.endpoints().join(","));
        command.arg(directory.path().join("history"));
        let recorder = Running::start(&mut command, &directory.path().join("log"));
        Self { directory, recorder }
    }

    fn history(&self) -> PathBuf {
        self.directory.path().join("history")
    }

    /// Waits until the recorder has this revision, or a later one.
    pub fn wait_for(&self, revision: i64) {
        let seen = || -> Option<i64> {
            let text = std::fs::read_to_string(self.history()).ok()?;
            let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.filter_map(|line| line["revision"].as_i64()).next()
        };
        let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        wait::until(
            &format!("revision {revision} is recorded"),
            || (seen()? >= revision).then_some(()),
            || format!("at {:?}\n{}", seen(), log()),
        );
    }

    /// Ends the recorder, and checks its history up to this revision at least. Returns how much of each
    /// kind was checked.
    ///
    /// # Panics
    /// Panics with what the checker printed, if a law is broken.
    pub fn check(mut self, revision: i64) -> Value {
        self.wait_for(revision);
        self.recorder.kill();
        let mut command = Command::new("python3");
        command.arg("-B").arg(program()).arg("check").arg(self.history());
        let output = run(&mut command, "");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        if let Some(directory) = std::env::var_os("ORCHESTRATE_TEST_KEEP_HISTORY") {
            let name = self.directory.path().file_name().expect("a name");
            let kept = Path::new(&directory).join(name);
            std::fs::copy(self.history(), &kept).expect("copied");
            std::fs::write(kept.with_extension("result"), &out).expect("written");
        }
        assert!(output.status.success(), "{out}{err}");
        serde_json::from_str(out.lines().last().unwrap_or_default()).expect("counts as JSON")
    }
}

/// Runs the tests that the checker has of itself.
pub fn self_test() {
    let output = run(Command::new("python3").arg("-B").arg(program()).arg("self-test"), "");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
