//! Range requests: filters, order and limit, applied in the same sequence as in etcd.

use super::Refusal;
use super::mvcc::{Mvcc, Span};
use etcd_client::proto::{PbKeyValue, PbRangeRequest, PbRangeResponse, PbResponseHeader};

/// Values of `RangeRequest.SortOrder`.
const ASCEND: i32 = 1;
const DESCEND: i32 = 2;
/// Values of `RangeRequest.SortTarget`; 0 is the key.
const BY_VERSION: i32 = 1;
const BY_CREATE: i32 = 2;
const BY_MOD: i32 = 3;
const BY_VALUE: i32 = 4;

/// Refuses range requests that are invalid in any state.
pub(crate) fn check_range(request: &PbRangeRequest) -> Result<(), Refusal> {
    if request.key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
}

/// Answers a range request. The header contains only the revision.
pub(crate) fn range(mvcc: &Mvcc, request: &PbRangeRequest) -> Result<PbRangeResponse, Refusal> {
    let span = Span::new(&request.key, &request.range_end);
    if request.count_only {
        let count = mvcc.count(span, request.revision)?;
        return Ok(answer(mvcc, Vec::new(), count, false));
    }
    let bounds = Bounds::of(request);
    let limit = usize::try_from(request.limit).unwrap_or(0);
    // A span that is filtered or sorted is read as a whole. Otherwise one more key than the limit
    // is read, which shows whether there are more.
    let read = if bounds.is_some() || request.sort_order != 0 || limit == 0 { 0 } else { limit + 1 };
    // Sorting by value needs the values.
    let keys_only = request.keys_only && request.sort_target != BY_VALUE;
    let (mut found, count) = mvcc.range(span, request.revision, read, keys_only)?;
    if let Some(bounds) = bounds {
        found.retain(|kv| bounds.hold(kv));
    }
    sort(&mut found, request);
    let more = limit > 0 && found.len() > limit;
    if more {
        found.truncate(limit);
    }
    if request.keys_only {
        found.iter_mut().for_each(|kv| kv.value = Vec::new());
    }
    Ok(answer(mvcc, found, count, more))
}

fn answer(mvcc: &Mvcc, kvs: Vec<PbKeyValue>, count: i64, more: bool) -> PbRangeResponse {
    PbRangeResponse { header: Some(header(mvcc)), kvs, more, count }
}

/// Returns a header with only the revision, as in the answers within a transaction.
pub(crate) fn header(mvcc: &Mvcc) -> PbResponseHeader {
    PbResponseHeader { revision: mvcc.revision(), ..PbResponseHeader::default() }
}

/// Sorts the found keys. Without an order, a target other than the key is sorted in ascending
/// order. Keys of equal rank stay in key order; etcd's sort does not define their order.
fn sort(found: &mut [PbKeyValue], request: &PbRangeRequest) {
    let descend = match request.sort_order {
        ASCEND => false,
        DESCEND => true,
        _ if request.sort_target != 0 => false,
        _ => return,
    };
    found.sort_by(|a, b| {
        let (a, b) = if descend { (b, a) } else { (a, b) };
        match request.sort_target {
            BY_VERSION => a.version.cmp(&b.version),
            BY_CREATE => a.create_revision.cmp(&b.create_revision),
            BY_MOD => a.mod_revision.cmp(&b.mod_revision),
            BY_VALUE => a.value.cmp(&b.value),
            _ => a.key.cmp(&b.key),
        }
    });
}

/// Lower and upper bounds on revisions; 0 means no bound.
struct Bounds {
    modified: (i64, i64),
    created: (i64, i64),
}

impl Bounds {
    fn of(request: &PbRangeRequest) -> Option<Self> {
        let modified = (request.min_mod_revision, request.max_mod_revision);
        let created = (request.min_create_revision, request.max_create_revision);
        (modified != (0, 0) || created != (0, 0)).then_some(Self { modified, created })
    }

    fn hold(&self, kv: &PbKeyValue) -> bool {
        let within =
            |(min, max): (i64, i64), found: i64| (min == 0 || found >= min) && (max == 0 || found <= max);
        within(self.modified, kv.mod_revision) && within(self.created, kv.create_revision)
    }
}
