//! Runs the tests of this subject again with Puppet 8, in a root directory of the Debian release
//! that has it.

use std::path::Path;
use std::process::Command;
use tests::process::{binary, run};
use tests::skip;

/// Start of the name of the test that boots a machine like this one; the other root has no systemd
/// to boot.
const HERE_ONLY: &str = "the_site_of_the_manual";

/// Script that mounts the directories that tests use into the other root under the same names, and
/// runs a command there.
const INSIDE: &str = r#"
root=$1; shift
# A file system of its own: within it tests make further ones.
mount --bind "$root" "$root"
for path in /proc /dev /sys /tmp "$REPOSITORY" "$PROGRAMS"; do
    mkdir -p "$root$path"
    mount --rbind "$path" "$root$path"
done
exec chroot "$root" "$@"
"#;

#[test]
fn all_of_it_holds_on_puppet_8() {
    let name = "puppet::newer::all_of_it_holds_on_puppet_8";
    let root = binary("orchestrate").with_file_name("../puppet-8-root");
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root changes its root");
    }
    if !root.join("usr/bin/puppet").exists() {
        return skip(name, "no root with Puppet 8: debootstrap could not make one");
    }
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        let repository =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
        let programs = binary("orchestrate").with_file_name("").canonicalize().expect("programs");
        command.args(["-m", "sh", "-ec", INSIDE, "sh"]).arg(root.canonicalize().expect("a root")).args(words);
        command.env("REPOSITORY", repository).env("PROGRAMS", programs).env("LANG", "C.UTF-8");
        // Environment as in that root.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env_remove("GEM_HOME").env_remove("RUBYLIB");
        run(&mut command, "")
    };
    let version = inside(&["puppet", "--version"]);
    assert!(version.stdout.starts_with(b"8."), "{version:?}");
    let own = std::env::current_exe().expect("the path of this test");
    let own = own.display().to_string();
    let output =
        inside(&[&own, "puppet::", "--skip", "puppet::newer::", "--skip", HERE_ONLY, "--test-threads=2"]);
    let result =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{result}");
    assert!(!result.contains(" 0 passed"), "{result}");
}
