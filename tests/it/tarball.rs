//! The tarball for machines that do not use the packages.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::host::CommandOutput;
use tests::process::{binary, run};

/// Makes the tarball of the built programs in a directory, under this umask.
pub(crate) fn make(directory: &Path, umask: &str) {
    let target =
        binary("orchestrate").parent().and_then(Path::parent).expect("a target directory").to_owned();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/scripts/tarball");
    let mut command = Command::new("sh");
    command.args(["-c", "umask \"$1\"; exec \"$2\" --profile dev --out \"$3\"", "sh", umask]);
    command.arg(script).arg(directory).env("CARGO_TARGET_DIR", &target).env("ORCHESTRATE_IS_BUILT", "1");
    succeed(&mut command);
}

/// Runs a command that must succeed; returns its standard output.
fn succeed(command: &mut Command) -> String {
    let result = CommandOutput::from(run(command, ""));
    assert_eq!(result.code, 0, "{command:?}: {result:?}");
    result.out
}

#[test]
fn it_is_the_same_each_time_and_works_where_it_is_unpacked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    make(&path("first"), "022");
    make(&path("second"), "077");
    let name = format!(
        "orchestrate-{}-{}-linux",
        env!("CARGO_PKG_VERSION"),
        succeed(Command::new("uname").arg("-m")).trim()
    );
    let [first, second] = ["first", "second"].map(|made| path(made).join(format!("{name}.tar.gz")));
    let bytes = |path: &Path| std::fs::read(path).expect("the tarball");
    assert!(bytes(&first) == bytes(&second), "two tarballs of the same programs differ");
    let made: Vec<_> = std::fs::read_dir(path("first")).expect("listed").flatten().collect();
    assert_eq!(made.len(), 2, "{made:?}");

    // The checksum is that of the file, and of no other.
    let check = || {
        let mut command = Command::new("sha256sum");
        run(command.args(["--check", "SHA256SUMS"]).current_dir(path("first")), "").status.success()
    };
    assert!(check());
    let mut damaged = bytes(&first);
    damaged[1000] ^= 1;
    std::fs::write(&first, damaged).expect("written");
    assert!(!check());

    // It belongs to root, and does not touch the directories of the system.
    let list = succeed(Command::new("tar").args(["--numeric-owner", "-tvzf"]).arg(&second));
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            ["drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"].contains(&words[0]) && words[1] == "0/0",
            "{line}"
        );
        let is_ours = words[5].contains("/orchestrate/");
        assert!(!words[0].starts_with('d') || is_ours, "{line}");
        assert!(words[5].starts_with(&name), "{line}");
    }

    let root = path("root");
    std::fs::create_dir(&root).expect("made");
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&second).arg("-C").arg(&root).args(["--strip-components=1", "--no-same-owner"]);
    succeed(&mut unpack);
    let version = env!("CARGO_PKG_VERSION");
    for (program, expected) in [
        ("usr/bin/orchestrate", format!("orchestrate {version}\n")),
        ("usr/bin/orchestrate-hiera", format!("orchestrate-hiera {version}\n")),
        ("usr/bin/solo-etcd", format!("solo-etcd {version}\n")),
        ("usr/sbin/orchestrate-agent", format!("orchestrate-agent {version}\n")),
        ("usr/sbin/orchestrate-observer", format!("orchestrate-observer {version}\n")),
    ] {
        assert_eq!(succeed(Command::new(root.join(program)).arg("--version")), expected);
    }
    let mut check = Command::new(root.join("usr/sbin/orchestrate-agent"));
    check.env_clear().args(["--check-config", "--config"]).arg(root.join("etc/orchestrate/agent.toml"));
    succeed(&mut check);
    let mut check = Command::new(root.join("usr/sbin/orchestrate-observer"));
    check.args(["--check-config", "--config"]).arg(root.join("etc/orchestrate/observer.toml"));
    succeed(&mut check);
    // The units start programs that are in the tarball.
    for unit in ["orchestrate-agent", "orchestrate-observer", "solo-etcd"] {
        let file = root.join(format!("usr/lib/systemd/system/{unit}.service"));
        let text = std::fs::read_to_string(file).expect("the unit");
        let program = text.lines().find_map(|line| line.strip_prefix("ExecStart=/")).expect("a program");
        let program = root.join(program.split(' ').next().expect("a path"));
        assert_eq!(program.metadata().expect("the program").permissions().mode() & 0o777, 0o755);
    }
    for file in [
        "etc/orchestrate/services.d",
        "usr/lib/sysusers.d/orchestrate.conf",
        "usr/lib/tmpfiles.d/orchestrate.conf",
        "usr/share/bash-completion/completions/orchestrate",
        "usr/share/doc/orchestrate/LICENSE-APACHE",
        "usr/share/doc/orchestrate/LICENSE-MIT",
        "usr/share/doc/orchestrate/docs/operations.md",
        "usr/share/man/man1/orchestrate.1.gz",
        "usr/share/man/man1/orchestrate-rollout-status.1.gz",
        "usr/share/man/man5/orchestrate-agent.toml.5.gz",
        "usr/share/man/man8/orchestrate-agent.8.gz",
        "usr/share/man/man8/solo-etcd.8.gz",
    ] {
        assert!(root.join(file).exists(), "{file} is missing");
    }
}
