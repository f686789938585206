//! The changes of one transaction to keys and to the leases that they are attached to.

use super::lease::Leases;
use super::mvcc::{Mvcc, Span, Writing};
use super::read;
use etcd_client::proto::{PbDeleteRequest, PbDeleteResponse, PbKeyValue, PbPutRequest, PbPutResponse};

/// A running transaction that changes keys and leases together.
pub(super) struct Change<'a> {
    pub(super) writing: Writing<'a>,
    pub(super) leases: &'a mut Leases,
}

impl Change<'_> {
    /// Returns the history, including the changes made so far.
    pub(super) fn mvcc(&self) -> &Mvcc {
        self.writing.so_far()
    }

    pub(super) fn put(&mut self, request: PbPutRequest) -> PbPutResponse {
        let before = if request.prev_kv || request.ignore_value || request.ignore_lease {
            self.mvcc().newest_key_value(&request.key)
        } else {
            None
        };
        let kept = |take: bool| if take { before.as_ref() } else { None };
        let value = kept(request.ignore_value).map_or(request.value, |kv: &PbKeyValue| kv.value.clone());
        let lease = kept(request.ignore_lease).map_or(request.lease, |kv| kv.lease);
        let (key, lease_before) = self.writing.put(&request.key, value, lease);
        if lease_before != lease {
            self.leases.detach(lease_before, &key);
            self.leases.attach(lease, &key);
        }
        let prev_kv = if request.prev_kv { before } else { None };
        PbPutResponse { header: Some(read::header(self.mvcc())), prev_kv }
    }

    pub(super) fn delete_range(&mut self, request: &PbDeleteRequest) -> PbDeleteResponse {
        let span = Span::new(&request.key, &request.range_end);
        let prev_kvs = if request.prev_kv {
            // The newest state is never compacted, so this read does not fail.
            self.mvcc().range(span, 0, 0, false).unwrap_or_default().0
        } else {
            Vec::new()
        };
        let deleted = self.writing.delete(span);
        for (key, lease) in &deleted {
            self.leases.detach(*lease, key);
        }
        PbDeleteResponse {
            header: Some(read::header(self.mvcc())),
            deleted: i64::try_from(deleted.len()).unwrap_or(i64::MAX),
            prev_kvs,
        }
    }
}
