//! Transactions: refuses invalid ones regardless of the state, selects the branch, and executes it.

use super::change::Change;
use super::limits::OPERATIONS_MAX;
use super::mvcc::{Mvcc, Span};
use super::read::{check_range, header, range};
use super::refusal::Refusal;
use etcd_client::proto::{
    PbCompare, PbDeleteRequest, PbPutRequest, PbResponseHeader, PbResponseOp, PbTargetUnion, PbTxnOpRequest,
    PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Refuses puts that are invalid in any state.
pub(crate) fn check_put(request: &PbPutRequest) -> Result<(), Refusal> {
    if request.key.is_empty() {
        Err(Refusal::EmptyKey)
    } else if request.ignore_value && !request.value.is_empty() {
        Err(Refusal::ValueProvided)
    } else if request.ignore_lease && request.lease != 0 {
        Err(Refusal::LeaseProvided)
    } else {
        Ok(())
    }
}

/// Refuses deletions that are invalid in any state.
pub(crate) fn check_delete(request: &PbDeleteRequest) -> Result<(), Refusal> {
    if request.key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
}

/// Refuses transactions that are invalid in any state.
pub(crate) fn check_txn(request: &PbTxnRequest) -> Result<(), Refusal> {
    check_operations(request, OPERATIONS_MAX)?;
    // These checks recurse, so they follow the check of the count, which bounds the depth of
    // nesting.
    writes_once(&request.success)?;
    writes_once(&request.failure)?;
    Ok(())
}

/// Checks the number of operations and each operation by itself. A nested transaction may have as
/// many operations as the longest list around it leaves of `most`.
fn check_operations(request: &PbTxnRequest, most: usize) -> Result<(), Refusal> {
    let count = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = most.checked_sub(count).ok_or(Refusal::TooManyOperations)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Refusal::EmptyKey);
    }
    for operation in request.success.iter().chain(&request.failure) {
        match &operation.request {
            Some(PbTxnOpRequest::RequestRange(request)) => check_range(request)?,
            Some(PbTxnOpRequest::RequestPut(request)) => check_put(request)?,
            Some(PbTxnOpRequest::RequestDeleteRange(request)) => check_delete(request)?,
            Some(PbTxnOpRequest::RequestTxn(request)) => check_operations(request, left)?,
            None => return Err(Refusal::KeyNotFound),
        }
    }
    Ok(())
}

type Puts<'a> = BTreeSet<&'a [u8]>;

/// The key ranges that deletions cover. The ranges do not overlap. Each maps its first key to its
/// end, which is exclusive.
#[derive(Default)]
struct Deletes<'a>(BTreeMap<&'a [u8], Cow<'a, [u8]>>);

impl<'a> Deletes<'a> {
    fn add(&mut self, delete: &'a PbDeleteRequest) {
        let end = if delete.range_end.is_empty() {
            Cow::Owned([delete.key.as_slice(), &[0]].concat())
        } else {
            Cow::Borrowed(delete.range_end.as_slice())
        };
        self.add_span(&delete.key, end);
    }

    /// Adds a range and merges it with the ranges that it touches. A deletion without an upper
    /// bound has a single zero byte as its end, which sorts before its start, so it covers nothing
    /// here.
    fn add_span(&mut self, start: &'a [u8], mut end: Cow<'a, [u8]>) {
        if start >= &*end {
            return;
        }
        let mut first = start;
        while let Some((before, until)) = self.0.range::<[u8], _>((Unbounded, Excluded(&*end))).next_back() {
            if **until < *start {
                break;
            }
            let before = *before;
            first = first.min(before);
            if let Some(until) = self.0.remove(before).filter(|until| *until > end) {
                end = until;
            }
        }
        self.0.insert(first, end);
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.0.range::<[u8], _>((Unbounded, Included(key))).next_back().is_some_and(|(_, end)| key < &**end)
    }
}

/// Refuses operations that put a key twice, or put and delete it. As in etcd's `checkIntervals`, a
/// deletion without an upper bound is ignored, and the deletions of a later nested transaction are
/// not compared with the puts of an earlier one.
fn writes_once(operations: &[PbTxnRequestOp]) -> Result<(Puts<'_>, Deletes<'_>), Refusal> {
    let requests = || operations.iter().filter_map(|operation| operation.request.as_ref());
    let mut deletes = Deletes::default();
    for request in requests() {
        if let PbTxnOpRequest::RequestDeleteRange(request) = request {
            deletes.add(request);
        }
    }
    let mut puts = Puts::new();
    for request in requests() {
        let PbTxnOpRequest::RequestTxn(nested) = request else { continue };
        let (puts_then, deletes_then) = writes_once(&nested.success)?;
        let (puts_else, deletes_else) = writes_once(&nested.failure)?;
        // Only one of the two branches runs, so both may put the same key.
        if puts_then.iter().chain(&puts_else).any(|key| puts.contains(key) || deletes.covers(key)) {
            return Err(Refusal::DuplicateKey);
        }
        puts.extend(puts_then);
        puts.extend(puts_else);
        for (start, end) in deletes_then.0.into_iter().chain(deletes_else.0) {
            deletes.add_span(start, end);
        }
    }
    for request in requests() {
        let PbTxnOpRequest::RequestPut(request) = request else { continue };
        if deletes.covers(&request.key) || !puts.insert(&request.key) {
            return Err(Refusal::DuplicateKey);
        }
    }
    Ok((puts, deletes))
}

/// True if the transaction contains only reads and no nested transactions. It then needs no place
/// in the order of writes.
pub(crate) fn is_read_only(request: &PbTxnRequest) -> bool {
    let reads =
        |operation: &PbTxnRequestOp| matches!(operation.request, Some(PbTxnOpRequest::RequestRange(_)));
    request.success.iter().chain(&request.failure).all(reads)
}

/// The branches that a transaction and its nested transactions take, outermost first. All
/// comparisons are evaluated on the state before the whole transaction.
pub(crate) struct Path(Vec<bool>);

impl Path {
    pub(crate) fn of(mvcc: &Mvcc, request: &PbTxnRequest) -> Self {
        let mut path = Vec::new();
        Self::add(mvcc, request, &mut path);
        Self(path)
    }

    fn add(mvcc: &Mvcc, request: &PbTxnRequest, path: &mut Vec<bool>) {
        let holds = request.compare.iter().all(|compare| holds(mvcc, compare));
        path.push(holds);
        for operation in branch(request, holds) {
            if let Some(PbTxnOpRequest::RequestTxn(nested)) = &operation.request {
                Self::add(mvcc, nested, path);
            }
        }
    }

    /// Returns the operations that will run, in order, with nested transactions replaced by their
    /// operations.
    fn operations<'a>(&self, request: &'a PbTxnRequest) -> Vec<&'a PbTxnOpRequest> {
        fn add<'a>(
            request: &'a PbTxnRequest,
            taken: &mut impl Iterator<Item = bool>,
            found: &mut Vec<&'a PbTxnOpRequest>,
        ) {
            let holds = taken.next().unwrap_or(false);
            for operation in branch(request, holds).iter().filter_map(|o| o.request.as_ref()) {
                match operation {
                    PbTxnOpRequest::RequestTxn(nested) => add(nested, taken, found),
                    other => found.push(other),
                }
            }
        }
        let mut found = Vec::new();
        add(request, &mut self.0.iter().copied(), &mut found);
        found
    }
}

fn branch(request: &PbTxnRequest, holds: bool) -> &[PbTxnRequestOp] {
    if holds { &request.success } else { &request.failure }
}

/// Values of `Compare.CompareResult`; 0 is equal.
const GREATER: i32 = 1;
const LESS: i32 = 2;
const NOT_EQUAL: i32 = 3;
/// Values of `Compare.CompareTarget`; 0 is the version.
const TARGET_CREATE: i32 = 1;
const TARGET_MOD: i32 = 2;
const TARGET_VALUE: i32 = 3;
const TARGET_LEASE: i32 = 4;

/// True if the comparison holds. For a range it must hold for every key. A key that does not exist
/// compares as zero, but a comparison of its value never holds.
fn holds(mvcc: &Mvcc, compare: &PbCompare) -> bool {
    let span = Span::new(&compare.key, &compare.range_end);
    let Ok((found, _)) = mvcc.range(span, 0, 0, compare.target != TARGET_VALUE) else { return false };
    let holds = |found: Ordering| match compare.result {
        0 => found.is_eq(),
        GREATER => found.is_gt(),
        LESS => found.is_lt(),
        NOT_EQUAL => found.is_ne(),
        _ => true,
    };
    let number = match compare.target_union {
        Some(PbTargetUnion::Version(n)) if compare.target == 0 => n,
        Some(PbTargetUnion::CreateRevision(n)) if compare.target == TARGET_CREATE => n,
        Some(PbTargetUnion::ModRevision(n)) if compare.target == TARGET_MOD => n,
        Some(PbTargetUnion::Lease(n)) if compare.target == TARGET_LEASE => n,
        _ => 0,
    };
    let value: &[u8] =
        if let Some(PbTargetUnion::Value(value)) = &compare.target_union { value } else { &[] };
    if found.is_empty() {
        return compare.target != TARGET_VALUE && holds(0.cmp(&number));
    }
    found.iter().all(|kv| {
        holds(match compare.target {
            0 => kv.version.cmp(&number),
            TARGET_CREATE => kv.create_revision.cmp(&number),
            TARGET_MOD => kv.mod_revision.cmp(&number),
            TARGET_VALUE => kv.value.as_slice().cmp(value),
            TARGET_LEASE => kv.lease.cmp(&number),
            _ => Ordering::Equal,
        })
    })
}

/// Refuses operations that are invalid in the present state: first checks the puts, then the reads.
pub(crate) fn check_against(
    mvcc: &Mvcc,
    request: &PbTxnRequest,
    path: &Path,
    has_lease: impl Fn(i64) -> bool,
) -> Result<(), Refusal> {
    let operations = path.operations(request);
    for operation in &operations {
        let PbTxnOpRequest::RequestPut(put) = operation else { continue };
        if (put.ignore_value || put.ignore_lease) && mvcc.newest(&put.key).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        if put.lease != 0 && !has_lease(put.lease) {
            return Err(Refusal::LeaseNotFound);
        }
    }
    for operation in &operations {
        let PbTxnOpRequest::RequestRange(read) = operation else { continue };
        if read.revision > mvcc.revision() {
            return Err(Refusal::FutureRevision);
        }
        if read.revision != 0 && read.revision < mvcc.compacted() {
            return Err(Refusal::Compacted);
        }
    }
    Ok(())
}

/// Executes a transaction that [`check_against`] has accepted.
pub(crate) fn run(change: &mut Change<'_>, request: &PbTxnRequest, path: &Path) -> PbTxnResponse {
    let mut answer = run_branch(change, request, &mut path.0.iter().copied());
    answer.header = Some(header(change.mvcc()));
    answer
}

fn run_branch(
    change: &mut Change<'_>,
    request: &PbTxnRequest,
    path: &mut impl Iterator<Item = bool>,
) -> PbTxnResponse {
    let succeeded = path.next().unwrap_or(false);
    let mut responses = Vec::new();
    for operation in branch(request, succeeded).iter().filter_map(|o| o.request.as_ref()) {
        let response = match operation {
            PbTxnOpRequest::RequestRange(read) => {
                // The read was checked before, and writes do not compact, so it does not fail.
                PbTxnOpResponse::ResponseRange(range(change.mvcc(), read).unwrap_or_default())
            }
            PbTxnOpRequest::RequestPut(put) => PbTxnOpResponse::ResponsePut(change.put(put.clone())),
            PbTxnOpRequest::RequestDeleteRange(delete) => {
                PbTxnOpResponse::ResponseDeleteRange(change.delete_range(delete))
            }
            PbTxnOpRequest::RequestTxn(nested) => {
                PbTxnOpResponse::ResponseTxn(run_branch(change, nested, path))
            }
        };
        responses.push(PbResponseOp { response: Some(response) });
    }
    // The header of a nested answer is empty.
    PbTxnResponse { header: Some(PbResponseHeader::default()), succeeded, responses }
}

/// Answers a transaction that only reads.
pub(crate) fn run_read_only(mvcc: &Mvcc, request: &PbTxnRequest) -> Result<PbTxnResponse, Refusal> {
    let path = Path::of(mvcc, request);
    check_against(mvcc, request, &path, |_| true)?;
    let succeeded = path.0[0];
    let mut responses = Vec::new();
    for operation in branch(request, succeeded) {
        if let Some(PbTxnOpRequest::RequestRange(read)) = &operation.request {
            let response = Some(PbTxnOpResponse::ResponseRange(range(mvcc, read)?));
            responses.push(PbResponseOp { response });
        }
    }
    Ok(PbTxnResponse { header: Some(header(mvcc)), succeeded, responses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0, b'a', b'b']), 0..3)
    }

    proptest! {
        #[test]
        fn deletions_cover_what_one_of_them_covers(
            deletes in prop::collection::vec((key(), prop::option::of(key())), 0..12),
            keys in prop::collection::vec(key(), 1..20),
        ) {
            let deletes: Vec<PbDeleteRequest> = deletes
                .into_iter()
                .map(|(key, end)| {
                    PbDeleteRequest { key, range_end: end.unwrap_or_default(), ..PbDeleteRequest::default() }
                })
                .collect();
            let mut all = Deletes::default();
            deletes.iter().for_each(|delete| all.add(delete));
            for key in &keys {
                let covers = |delete: &PbDeleteRequest| match delete.range_end.as_slice() {
                    [] => *key == delete.key,
                    end => *key >= delete.key && key.as_slice() < end,
                };
                prop_assert_eq!(all.covers(key), deletes.iter().any(covers), "{:?}", key);
            }
            let spans: Vec<_> = all.0.iter().collect();
            prop_assert!(spans.windows(2).all(|pair| **pair[0].1 <= **pair[1].0), "apart: {:?}", spans);
        }
    }
}
