//! The names of hosts, versions, services and values for completion. They come from the store within a
//! short time, or not at all, and are kept for some seconds in a directory that only the user can
//! read.

use crate::local;
use crate::settings::Settings;
use etcd_session::{Deadline, EndpointSource, Session, StoreError};
use rustix::process::getuid;
use schema::keys::{self, Key, Prefix};
use schema::names::{ConfigName, HostName, ServiceName, Version};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time that the store has to answer. Somebody has pressed a key and waits.
const LIMIT: Duration = Duration::from_millis(500);
/// Time for which a list is kept: somebody completes several words of one line.
const KEPT: Duration = Duration::from_secs(10);
/// Largest list that is read, in bytes.
const LIST_MAX_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Hosts,
    Versions,
    Services,
    Values,
}

/// Returns the names; none if the store does not give them in time.
pub(super) fn names(kind: Kind, settings: &Settings) -> BTreeSet<String> {
    let path = directory(settings).map(|directory| directory.join(file_name(kind, settings)));
    if let Some(kept) = path.as_deref().and_then(read) {
        return kept;
    }
    let Some(names) = fetch(kind, settings) else { return BTreeSet::new() };
    if let Some(path) = path {
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        let _ = local::keep_private(&path, lines.as_bytes());
    }
    names
}

/// Returns the directory of the lists, which only this user can read; `None` if it cannot be used.
fn directory(settings: &Settings) -> Option<PathBuf> {
    let base = settings.cache_directory.as_deref()?;
    let owner = |path: &Path| {
        // A link may lead to a directory of others.
        let found = fs::symlink_metadata(path).ok().filter(|found| found.is_dir())?;
        (found.uid() == getuid().as_raw()).then_some(found.mode())
    };
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    let directory = base.join("orchestrate");
    if !directory.exists() {
        builder.recursive(true).create(base).ok()?;
        // The home of another user, as after `sudo`, stays as it is.
        owner(&fs::canonicalize(base).ok()?)?;
        builder.recursive(false).create(&directory).ok()?;
    }
    owner(&directory).filter(|mode| mode & 0o077 == 0)?;
    Some(directory)
}

/// Returns the name of the file for the lists of one store as one user sees it.
fn file_name(kind: Kind, settings: &Settings) -> String {
    let session = &settings.session;
    let mut hasher = DefaultHasher::new();
    format!("{:?}", session.endpoints).hash(&mut hasher);
    (&session.namespace, session.user.as_ref().map(|(name, _)| name)).hash(&mut hasher);
    (&session.tls.cacert, &session.tls.cert, &session.tls.key).hash(&mut hasher);
    format!("{kind:?}-{:016x}", hasher.finish()).to_lowercase()
}

/// Returns a list that is not too old.
fn read(path: &Path) -> Option<BTreeSet<String>> {
    let age = fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()?;
    if age > KEPT {
        return None;
    }
    let text = local::read_up_to(path, LIST_MAX_BYTES).ok()??;
    Some(text.lines().map(str::to_owned).collect())
}

/// Reads the names from the store. Returns `None` if the store does not answer in time, or if the
/// user may not read them.
fn fetch(kind: Kind, settings: &Settings) -> Option<BTreeSet<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = runtime.block_on(async {
        tokio::time::timeout(LIMIT, async {
            let mut config = settings.session.clone();
            config.dial_timeout = config.dial_timeout.min(LIMIT);
            if !matches!(&config.endpoints, EndpointSource::List(list) if list.len() == 1) {
                // A silent member leaves time to ask another.
                config.dial_timeout = config.dial_timeout.min(LIMIT / 3);
                config.attempt_timeout = config.attempt_timeout.min(LIMIT / 2);
            }
            let session = Session::new(config).ok()?;
            let deadline = Deadline::within(LIMIT);
            match kind {
                Kind::Hosts => hosts(&session, deadline).await,
                Kind::Versions => versions(&session, deadline).await,
                Kind::Services => services(&session, deadline).await,
                Kind::Values => values(&session, deadline).await,
            }
            .ok()
        })
        .await
        .ok()
        .flatten()
    });
    // A name lookup may still be blocked; its result is no longer needed.
    runtime.shutdown_background();
    names
}

/// Reads the hosts of the roster, without those that were decommissioned, and the listed hosts.
async fn hosts(session: &Session, deadline: Deadline) -> Result<BTreeSet<String>, StoreError> {
    let mut hosts = BTreeSet::new();
    let at = session
        .read_entry_pages(&Prefix::Hosts, None, deadline, |page| {
            for (key, value) in page.entries() {
                let Ok(Key::Host(host)) = Key::parse(key) else { continue };
                let is_out = keys::Host::read(value).is_ok_and(|e| e.decommissioned.is_some());
                if !is_out {
                    hosts.insert(host.as_str().to_owned());
                }
            }
        })
        .await?;
    let listed = session.read_key_list(&Prefix::RunningVersions, Some(at), deadline).await?;
    let names = listed.suffixes().filter_map(|suffix| HostName::new(suffix.split_once('/')?.1).ok());
    hosts.extend(names.map(|host| host.as_str().to_owned()));
    Ok(hosts)
}

/// Reads the desired version and those under which hosts are listed.
async fn versions(session: &Session, deadline: Deadline) -> Result<BTreeSet<String>, StoreError> {
    let listed = session.read_key_list(&Prefix::RunningVersions, None, deadline).await?;
    let found = session.read_keys(&[Key::CurrentVersion], deadline).await?;
    let desired =
        found.get(&Key::CurrentVersion).map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
    let mut last = "";
    let mut versions: BTreeSet<String> =
        desired.as_deref().map(str::trim).into_iter().filter_map(version).collect();
    for text in listed.suffixes().filter_map(|suffix| Some(suffix.split_once('/')?.0)) {
        // The keys are sorted.
        if text != last {
            versions.extend(version(text));
            last = text;
        }
    }
    Ok(versions)
}

fn version(text: &str) -> Option<String> {
    Version::new(text).ok().map(|version| version.as_str().to_owned())
}

/// Reads the services that hosts publish.
async fn services(session: &Session, deadline: Deadline) -> Result<BTreeSet<String>, StoreError> {
    let list = session.read_key_list(&Prefix::Services, None, deadline).await?;
    let names = list.suffixes().filter_map(|suffix| ServiceName::new(suffix.split_once('/')?.0).ok());
    Ok(names.map(|service| service.as_str().to_owned()).collect())
}

/// Reads the names of the values that operators keep.
async fn values(session: &Session, deadline: Deadline) -> Result<BTreeSet<String>, StoreError> {
    let list = session.read_key_list(&Prefix::Config, None, deadline).await?;
    let names = list.suffixes().filter_map(|name| ConfigName::new(name).ok());
    Ok(names.map(|name| name.as_str().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn settings(home: &Path, more: &[(&str, &str)]) -> Settings {
        let options = crate::cli::parse(vec!["orchestrate".into(), "ping".into()]).unwrap().global;
        let home = home.display().to_string();
        let get = |name: &str| match name {
            "HOME" => Some(home.clone()),
            _ => more.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
        };
        Settings::resolve(&options, get).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn lists_are_kept_where_only_the_user_reads_them() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(home.path(), &[]);
        let found = directory(&settings).unwrap();
        assert_eq!(found, home.path().join(".cache/orchestrate"));
        assert_eq!(mode(&found), 0o700);
        let file = found.join("list");
        local::keep_private(&file, b"web-1\nweb-2\n").unwrap();
        assert_eq!(mode(&file), 0o600);
        assert_eq!(read(&file).unwrap().into_iter().collect::<Vec<_>>(), ["web-1", "web-2"]);
        let old = std::time::SystemTime::now() - KEPT - Duration::from_secs(1);
        fs::File::open(&file).unwrap().set_modified(old).unwrap();
        assert_eq!(read(&file), None, "a list that is too old is not used");
        fs::set_permissions(&found, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(directory(&settings), None, "others can read it");
        fs::remove_dir_all(&found).unwrap();
        std::os::unix::fs::symlink(home.path(), &found).unwrap();
        assert_eq!(directory(&settings), None, "a link");
    }

    #[test]
    fn each_store_and_each_user_has_lists_of_its_own_and_no_name_contains_a_secret() {
        let home = tempfile::tempdir().unwrap();
        let name = |more: &[(&str, &str)]| file_name(Kind::Hosts, &settings(home.path(), more));
        let names = [
            name(&[]),
            name(&[("ORCHESTRATE_ENDPOINTS", "a:1")]),
            name(&[("ORCHESTRATE_NAMESPACE", "/a")]),
            name(&[("ORCHESTRATE_USER", "a:canary")]),
            name(&[("ORCHESTRATE_USER", "b:canary")]),
            file_name(Kind::Versions, &settings(home.path(), &[])),
        ];
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert_eq!(name(&[("ORCHESTRATE_USER", "a:canary")]), name(&[("ORCHESTRATE_USER", "a:other")]));
        assert!(!format!("{names:?}").contains("canary"));
    }

    #[test]
    fn a_store_that_is_away_has_no_names_and_nothing_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(home.path(), &[("ORCHESTRATE_ENDPOINTS", "127.0.0.1:1")]);
        let started = std::time::Instant::now();
        assert_eq!(names(Kind::Hosts, &settings), BTreeSet::new());
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        assert_eq!(fs::read_dir(home.path().join(".cache/orchestrate")).unwrap().count(), 0);
    }
}
