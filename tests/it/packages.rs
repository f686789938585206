//! The Debian packages, in a clean root directory under a real systemd.

use crate::service_manager::{Machine, can_boot};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::process::{binary, in_own_network, run};
use tests::{observer, skip, wait};

const UNIT: &str = "orchestrate-agent.service";
const PACKAGE: &str = "orchestrate";

/// Builds the packages from unoptimised programs; returns their directory.
fn packages() -> PathBuf {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    // They are built in the target directory of the programs that the tests start.
    let target =
        binary("orchestrate").parent().and_then(Path::parent).expect("a target directory").to_owned();
    let mut command = Command::new(repository.join("packaging/scripts/deb"));
    command.args(["--profile", "dev"]).env("CARGO_TARGET_DIR", &target).env("ORCHESTRATE_IS_BUILT", "1");
    let output = run(&mut command, "");
    let result =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // The script also runs lintian.
    assert!(output.status.success(), "{result}");
    target.join("deb")
}

/// Returns the same package with a higher version and an additional line in its settings.
fn newer(package: &Path, directory: &Path) -> PathBuf {
    let (tree, newer) = (directory.join("tree"), directory.join("newer.deb"));
    let script =
        "set -e; dpkg-deb -R \"$1\" \"$2\"; sed -i 's/^Version: .*/Version: 0.2.0/' \"$2/DEBIAN/control\"
        echo '# newer' >> \"$2/etc/orchestrate/agent.toml\"; dpkg-deb -Zgzip -z1 -b \"$2\" \"$3\"";
    let output = run(Command::new("sh").args(["-c", script, "sh"]).arg(package).arg(tree).arg(&newer), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    newer
}

#[test]
fn the_package_runs_when_it_is_installed_keeps_what_is_the_sites_and_leaves_nothing_when_purged() {
    let name = "packages::the_package_runs_when_it_is_installed_keeps_what_is_the_sites_and_leaves_nothing_when_purged";
    let root = binary("orchestrate").with_file_name("../debian-root");
    if let Err(why) = can_boot() {
        return skip(name, why);
    }
    if !root.join("etc/os-release").exists() {
        return skip(name, "no clean root: debootstrap could not make one");
    }
    if !in_own_network(name) {
        return;
    }
    let Some(mut machine) = Machine::over(&root.canonicalize().expect("a path")) else {
        return skip(name, "no file system can be laid over another");
    };
    let packages = packages();
    let deb = |name: &str| {
        let all = fs::read_dir(&packages).expect("packages").flatten().map(|entry| entry.path());
        let is = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
        };
        all.into_iter().find(is).unwrap_or_else(|| panic!("no package {name}"))
    };
    let directory = tempfile::tempdir().expect("a directory");
    for (from, to) in [
        (deb(PACKAGE), "orchestrate.deb"),
        (newer(&deb(PACKAGE), directory.path()), "newer.deb"),
        (deb("orchestrate-observer"), "observer.deb"),
        (deb("puppet-module-orchestrate"), "puppet.deb"),
        (deb("python3-jorc"), "python.deb"),
    ] {
        fs::copy(from, machine.file(&format!("/root/{to}"))).expect("copied");
    }
    machine.boot();

    // After installation the agent runs as packaged, without a store.
    machine.run(&["dpkg", "-i", "/root/orchestrate.deb"]);
    let is = |word: &str| (machine.property("ActiveState") == word).then_some(());
    wait::until("the agent runs", || is("active"), || machine.describe());
    assert_eq!(machine.run(&["systemctl", "is-enabled", UNIT]), "enabled");
    assert_eq!(machine.run(&["orchestrate-agent", "--check-config"]), "");
    machine.run(&["systemd-analyze", "--man=no", "verify", UNIT, "solo-etcd.service"]);
    let socket = || machine.try_run(&["test", "-S", "/run/orchestrate/agent.sock"]).filter(|result| result.0);
    wait::until("its socket is there", socket, || machine.describe());
    assert_eq!(machine.run(&["stat", "-c", "%G %a", "/run/orchestrate/agent.sock"]), "orchestrate 660");
    for path in [
        "/usr/share/man/man1/orchestrate.1.gz",
        "/usr/share/man/man1/orchestrate-rollout-status.1.gz",
        "/usr/share/man/man5/orchestrate-agent.toml.5.gz",
        "/usr/share/man/man8/orchestrate-agent.8.gz",
        "/usr/share/bash-completion/completions/orchestrate",
        "/usr/share/zsh/vendor-completions/_orchestrate",
        "/usr/share/fish/vendor_completions.d/orchestrate.fish",
        "/usr/bin/orchestrate-hiera",
        "/etc/facter/facts.d",
    ] {
        machine.run(&["test", "-e", path]);
    }

    // The first thing that a user does: a store on the same machine, and a version that needs no
    // step.
    machine.run(&[
        "sh",
        "-c",
        "set -e; orchestrate bootstrap --first --role web >/root/next; sh -e /root/next",
    ]);
    machine.run(&["test", "-e", "/etc/orchestrate/agent.d/00-bootstrap.toml"]);
    let ping = || machine.try_run(&["orchestrate", "ping"]).filter(|result| result.0);
    wait::until("the store answers", ping, || machine.describe());
    wait::until("the agent runs with it", || is("active"), || machine.describe());
    machine.run(&["orchestrate", "trigger_update", "1"]);
    let host = machine.run(&["hostname"]);
    let verified = || machine.try_run(&["orchestrate", "verify_hosts", "1", &host]).filter(|result| result.0);
    wait::until("the host is at version 1", verified, || machine.describe());

    the_observer_shows_the_host(&machine, &host);
    a_bundle_has_the_journal_without_secrets(&machine, &host);
    wait::until("the host is at version 1 again", verified, || machine.describe());

    // After an upgrade the site's changes remain, and the new program runs.
    machine.run(&["sh", "-c", "echo 'role = \"web\"' | cat - /etc/orchestrate/agent.toml > /root/t && cp /root/t /etc/orchestrate/agent.toml"]);
    let before = machine.property("MainPID");
    machine.run(&["dpkg", "--force-confold", "-i", "/root/newer.deb"]);
    assert!(machine.run(&["head", "-n1", "/etc/orchestrate/agent.toml"]).contains("web"));
    wait::until("the agent runs", || is("active"), || machine.describe());
    assert_ne!(machine.property("MainPID"), before, "it was started again");
    wait::until("the host is still at version 1", verified, || {
        let result = machine.try_run(&["orchestrate", "verify_hosts", "1", &host]);
        format!("{result:?}\n{}", machine.describe())
    });

    // Without root, as the manual describes: everything that does not need root works.
    let manual = include_str!("../../docs/packaging.md");
    let drop_in =
        manual.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a drop-in");
    let path = drop_in.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a path");
    machine.write(path, drop_in);
    machine.write(
        "/etc/orchestrate/agent.d/50-site.toml",
        "driver = \"external\"\n[services]\naddresses = [\"10.0.0.5\"]\n",
    );
    machine.write("/etc/orchestrate/services.d/web.toml", "[[service]]\nname = \"web\"\nport = 80\n");
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "restart", UNIT]);
    let works =
        || machine.try_run(&["orchestrate", "wait_for", "web", "--timeout", "2s"]).filter(|result| result.0);
    wait::until("its service is published", works, || {
        format!(
            "{:?}\n{}",
            machine.try_run(&["curl", "-s", "http://127.0.0.1:8580/status"]),
            machine.describe()
        )
    });
    let pid = machine.property("MainPID");
    assert_ne!(machine.run(&["stat", "-c", "%u", &format!("/proc/{pid}")]), "0");
    assert_eq!(machine.run(&["stat", "-c", "%G %a", "/run/orchestrate/agent.sock"]), "orchestrate 660");
    let judged = machine.run(&["systemd-analyze", "--no-pager", "security", UNIT]);
    let result =
        manual.rsplit_once(" (\"OK\"):").and_then(|(text, _)| text.rsplit(' ').next()).expect("a number");
    assert!(judged.contains(&format!("{result} OK")), "{judged}");
    machine.run(&["rm", "-r", "/etc/systemd/system/orchestrate-agent.service.d"]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "restart", UNIT]);

    // The other packages.
    machine.run(&["dpkg", "--force-depends", "-i", "/root/puppet.deb", "/root/python.deb"]);
    machine.run(&["test", "-e", "/usr/share/puppet/modules/orchestrate/metadata.json"]);
    machine.run(&["test", "-e", "/usr/lib/python3/dist-packages/jiocloud/orchestrate.py"]);
    machine.run(&["jorc", "ping"]);
    machine.run(&["dpkg", "-r", "puppet-module-orchestrate", "python3-jorc"]);
    machine.run(&["dpkg", "-P", "orchestrate-observer"]);

    // After removal nothing runs and the state remains. After a purge nothing remains.
    machine.run(&["dpkg", "-r", PACKAGE]);
    assert_ne!(machine.property("ActiveState"), "active");
    assert!(!machine.try_run(&["systemctl", "is-active", "solo-etcd"]).is_some_and(|result| result.0));
    machine.run(&["test", "-e", "/var/lib/orchestrate/journal"]);
    machine.run(&["test", "-e", "/etc/orchestrate/agent.toml"]);
    machine.run(&["dpkg", "-P", PACKAGE]);
    let left = "find / -xdev -path /proc -prune -o -path /root -prune -o -path /sys -prune -o \\( -name '*orchestrate*' -o -name 'solo-etcd*' \\) -print";
    let left = machine.run(&["sh", "-c", left]);
    let left: Vec<&str> = left
        .lines()
        .filter(|l| !l.starts_with("/var/log/") && !l.starts_with("/run/") && !l.starts_with("/tmp/"))
        .collect();
    assert_eq!(left, Vec::<&str>::new());
}

/// Lets a step fail that writes its secret into the journal of the unit, and leads the host back.
fn a_bundle_has_the_journal_without_secrets(machine: &Machine, host: &str) {
    const OBJECTS: &str = "/var/lib/orchestrate/objects";
    let settings = "/etc/orchestrate/agent.d/60-failing.toml";
    machine.run(&["mkdir", OBJECTS]);
    // The journal does not know the unit of a process that has ended before it looks.
    machine.write(
        "/root/install",
        "#!/bin/sh\n[ \"$ORCHESTRATE_STEP_VERSION\" = 1 ] && exit 0\n\
         [ \"$1\" = print ] || { systemd-cat /bin/sh \"$0\" print; echo 'error: no route'; exit 3; }\n\
         echo \"the password is $DB_PASSWORD\"\n\
         until journalctl -q | grep -q 'the password is'; do sleep 0.1; done\n",
    );
    machine.write(
        settings,
        &format!(
            "[environment]\nDB_PASSWORD = \"canary-77-long\"\n[bundles]\nto = \"file://{OBJECTS}\"\nspread = \"0s\"\n\
             [[apply]]\nname = \"install\"\ncommand = [\"/bin/sh\", \"/root/install\"]\n"
        ),
    );
    machine.run(&["systemctl", "restart", UNIT]);
    machine.run(&["orchestrate", "trigger_update", "2"]);
    let from = format!("file://{OBJECTS}");
    let fetch = ["orchestrate", "bundle", host, "--from", &from, "--into", "/root/bundle"];
    let fetched = || machine.try_run(&fetch).filter(|result| result.0);
    wait::until("the bundle of the failure is there", fetched, || {
        format!("{:?}\n{}", machine.try_run(&fetch), machine.describe())
    });
    let journal = machine.run(&["cat", "/root/bundle/journal.log"]);
    assert!(journal.contains("the password is ***"), "{journal}");
    let whole = machine.run(&["journalctl", "--unit", UNIT]);
    assert!(whole.contains("canary-77-long"), "the journal itself has the secret: {whole}");
    let found = machine.run(&["sh", "-c", "grep -r canary /root/bundle || true"]);
    assert_eq!(found, "");
    machine.run(&["rm", "-r", settings, "/root/install", "/root/bundle", OBJECTS]);
    machine.run(&["systemctl", "restart", UNIT]);
    machine.run(&["orchestrate", "trigger_update", "1"]);
}

/// Installs the observer, which follows the store of the machine as a user of its own.
fn the_observer_shows_the_host(machine: &Machine, host: &str) {
    const OBSERVER: &str = "orchestrate-observer.service";
    machine.run(&["dpkg", "-i", "/root/observer.deb"]);
    assert_eq!(machine.run(&["systemctl", "is-active", OBSERVER]), "active");
    machine.run(&["systemd-analyze", "--man=no", "verify", OBSERVER]);
    machine.run(&["orchestrate-observer", "--check-config"]);
    let token = "/var/lib/orchestrate-observer/token";
    assert_eq!(
        machine.run(&["stat", "-c", "%U %G %a", token]),
        "orchestrate-observer orchestrate-observer 640"
    );
    // The machine has the network of this test.
    let bearer = format!("Bearer {}", machine.run(&["cat", token]));
    let headers = [("Host", "localhost"), ("Authorization", &bearer)];
    let ask = || observer::ask("127.0.0.1:8590", &format!("/v1/hosts/{host}"), &headers).ok();
    let shown = || ask().filter(|answer| answer.code == 200 && answer.json()["verdict"] == "ok");
    wait::until("the observer shows the host", shown, || {
        format!("{:?}\n{:?}", ask(), machine.try_run(&["journalctl", "-u", OBSERVER]))
    });
    for path in [
        "/usr/share/man/man8/orchestrate-observer.8.gz",
        "/usr/share/orchestrate-observer/orchestrate.dashboard.json",
        "/usr/share/orchestrate-observer/orchestrate.rules.yml",
        "/etc/orchestrate/observer.toml",
    ] {
        machine.run(&["test", "-e", path]);
    }
    let judged = machine.run(&["systemd-analyze", "--no-pager", "security", OBSERVER]);
    let manual = include_str!("../../docs/packaging.md");
    let part = manual.split("`orchestrate-observer.service` runs").nth(1).expect("a description");
    let rating =
        part.split("Its rating is ").nth(1).and_then(|text| text.split(' ').next()).expect("a number");
    assert!(judged.contains(&format!("{rating} OK")), "{judged}");
}
