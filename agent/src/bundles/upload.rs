//! Which host uploads: of those that failed in one rollout for one cause, the first that makes the object
//! `first/ROLLOUT/FINGERPRINT/claim-0`. The others look again later. If there is no bundle by then, the first that makes
//! `claim-1` uploads, and so on. Who has uploaded makes `done`. Objects are only made and looked for, so a host needs no
//! right to list, replace or remove any.

use super::pack::{Packed, Subject};
use anyhow::{Context, Result};
use archive::objects::{Created, ObjectName, ObjectStore};
use schema::records::BundleLink;
use std::path::Path;

/// A bundle on its way.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) subject: Subject,
    pub(super) packed: Packed,
    /// The number of the claim that this host makes next, or has made.
    claim: u32,
    is_claimed: bool,
}

/// How far the upload got.
#[derive(Debug)]
pub(crate) enum Uploaded {
    /// This host has uploaded.
    ByThis(BundleLink),
    /// There is a bundle of another host.
    Elsewhere,
    /// Another host has begun.
    NotYet,
}

impl Upload {
    pub(super) fn new(subject: Subject, packed: Packed) -> Self {
        Self { subject, packed, claim: 0, is_claimed: false }
    }

    /// Uploads the bundle in this directory, if that is for this host to do.
    pub(super) fn go_on(&mut self, store: &ObjectStore, directory: &Path) -> Result<Uploaded> {
        let Subject { host, rollout, fingerprint } = &self.subject;
        let first = format!("first/{rollout}/{fingerprint}");
        let done = name(&format!("{first}/done"));
        let (own, by) = (self.object(), host.as_str().as_bytes());
        match store.exists(&done) {
            Ok(true) => return Ok(Uploaded::Elsewhere),
            // Who may not list a bucket of AWS is not told that an object is absent. If the access key is wrong, the next
            // request says so.
            Err(error) if error.status() != Some(403) => return Err(error.into()),
            Ok(false) | Err(_) => {}
        }
        if !self.is_claimed {
            match store.create(&name(&format!("{first}/claim-{}", self.claim)), by)? {
                Created::Now => self.is_claimed = true,
                Created::Existed => {
                    self.claim += 1;
                    return Ok(Uploaded::NotYet);
                }
            }
        }
        let path = directory.join(&self.packed.name);
        let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        // The name has a part of the digest, so an object that exists has this content.
        store.create_file(&own, &file)?;
        store.create(&done, by)?;
        Ok(Uploaded::ByThis(BundleLink {
            url: store.url().join(&own),
            sha256: self.packed.sha256.clone(),
            bytes: self.packed.bytes,
            rollout: *rollout,
            fingerprint: fingerprint.clone(),
        }))
    }

    fn object(&self) -> ObjectName {
        let Subject { host, rollout, fingerprint } = &self.subject;
        name(&format!("{host}/{rollout}-{fingerprint}-{}.tar.zst", &self.packed.sha256[..12]))
    }
}

/// Host names, rollouts and fingerprints consist of characters that a name may have.
#[allow(clippy::expect_used, reason = "the parts are checked types")]
fn name(text: &str) -> ObjectName {
    text.parse().expect("a name of an object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::objects::ObjectStoreConfig;
    use schema::names::{Fingerprint, HostName};
    use schema::order::InstructionOrder;

    fn upload(host: &str, fingerprint: &str, waiting: &Path) -> Upload {
        std::fs::write(waiting.join(host), host).unwrap();
        let subject = Subject {
            host: HostName::new(host).unwrap(),
            rollout: InstructionOrder { epoch: 1, revision: 7 },
            fingerprint: Fingerprint::new(fingerprint).unwrap(),
        };
        Upload::new(subject, Packed { name: host.into(), sha256: "ab".repeat(32), bytes: host.len() as u64 })
    }

    /// What is made of an attempt: the object if this host uploaded.
    fn shown(uploaded: Uploaded) -> String {
        match uploaded {
            Uploaded::ByThis(link) => link.url.rsplit_once("/web").expect("a host").1.to_owned(),
            Uploaded::Elsewhere => "elsewhere".into(),
            Uploaded::NotYet => "not yet".into(),
        }
    }

    #[test]
    fn one_host_uploads_for_each_cause_and_another_takes_over_if_it_dies() {
        let (objects, waiting) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let url = format!("file://{}", objects.path().display()).parse().unwrap();
        let store = ObjectStore::open(ObjectStoreConfig::new(url)).unwrap();
        let go_on = |upload: &mut Upload| shown(upload.go_on(&store, waiting.path()).unwrap());
        let (one, other) = ("f1-0123456789ab", "f1-ba9876543210");
        let object = |host: u32, cause: &str| {
            format!("{host}/0000000001-0000000000000000007-{cause}-abababababab.tar.zst")
        };
        assert_eq!(go_on(&mut upload("web1", one, waiting.path())), object(1, one));
        assert_eq!(go_on(&mut upload("web2", one, waiting.path())), "elsewhere");
        // Its host dies after it has claimed.
        let dead = upload("web3", other, waiting.path());
        store.create(&name(&format!("first/{}/{other}/claim-0", dead.subject.rollout)), b"web3").unwrap();
        let (mut second, mut third) =
            (upload("web4", other, waiting.path()), upload("web5", other, waiting.path()));
        assert_eq!([go_on(&mut second), go_on(&mut third)], ["not yet", "not yet"]);
        assert_eq!([go_on(&mut second), go_on(&mut third)], [object(4, other), "elsewhere".into()]);
        // The answer to its upload was lost.
        assert_eq!(go_on(&mut upload("web4", other, waiting.path())), "elsewhere");
        let mut again = upload("web6", one, waiting.path());
        std::fs::remove_dir_all(objects.path().join("first")).unwrap();
        assert_eq!(go_on(&mut again), object(6, one));
        std::fs::remove_dir_all(objects.path().join("first")).unwrap();
        assert_eq!(go_on(&mut again), object(6, one), "the object exists with the same content");
    }
}
