//! Random histories are sent to a real etcd and to the embedded store; every answer, every error
//! and every event must be the same. A failure prints the shortest failing history that was found.
//!
//! This file is long because it holds the generator, the two stores and the comparison of one
//! property test.

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbCompare, PbDeleteRequest, PbDeleteResponse, PbEvent,
    PbKeyValue, PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse,
    PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse, PbPutRequest, PbPutResponse, PbRangeRequest,
    PbRangeResponse, PbResponseHeader, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest,
    PbTxnRequestOp, PbTxnResponse, PbWatchRequestUnion, PbWatchResponse,
};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::raw::{Raw, Refused, WatchStream, revision};
use tests::solo::Solo;

/// Time within which etcd has served watchers that start in the past, also on a slow machine; it does so every 100 ms.
const LATE_WATCHERS_WITHIN: Duration = Duration::from_secs(1);
/// Time limit for etcd to send the events that the embedded store has sent.
const EVENTS_WITHIN: Duration = Duration::from_secs(30);

/// One step of a history. Revisions are relative to the newest one, so that a history means the
/// same after any other.
#[derive(Debug, Clone)]
enum Step {
    Put(PbPutRequest),
    Range(PbRangeRequest),
    Delete(PbDeleteRequest),
    Txn(PbTxnRequest),
    Compact(i64),
    Grant(PbLeaseGrantRequest),
    Revoke(i64),
    KeepAlive(i64),
    TimeToLive(i64),
    Leases,
    Watch(NewWatch),
    CancelWatch(i64),
    Progress,
}

#[derive(Debug, Clone)]
struct NewWatch {
    key: Vec<u8>,
    range_end: Vec<u8>,
    /// Start revision relative to the newest one; `None` means "from now on", which is sent as 0.
    start: Option<i64>,
    filters: Vec<i32>,
    prev_kv: bool,
    watch_id: i64,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => select(vec![&b"a"[..], b"b", b"ba", b"c"]),
        2 => select(vec![&b"\x00"[..], b"b\xff"]),
        1 => Just(&b""[..]),
    ]
    .prop_map(<[u8]>::to_vec)
}

fn end() -> impl Strategy<Value = Vec<u8>> {
    select(vec![&b""[..], b"\x00", b"b", b"c", b"d", b"a", b"bb"]).prop_map(<[u8]>::to_vec)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    select(vec![&b"1"[..], b"2", b"", b"longer"]).prop_map(<[u8]>::to_vec)
}

/// Lease ids: 0 is no lease; 9 is never granted.
fn lease() -> impl Strategy<Value = i64> {
    prop_oneof![8 => Just(0i64), 4 => 7i64..9, 1 => Just(9i64)]
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn put() -> impl Strategy<Value = PbPutRequest> {
    (key(), value(), lease(), any::<bool>(), rarely(), rarely(), prop::bool::weighted(0.8)).prop_map(
        |(key, value, lease, prev_kv, ignore_value, ignore_lease, sound)| PbPutRequest {
            key,
            value: if ignore_value && sound { Vec::new() } else { value },
            lease: if ignore_lease && sound { 0 } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        },
    )
}

/// Relative revisions of a range: mostly none, otherwise close to the newest.
fn back() -> impl Strategy<Value = i64> {
    prop_oneof![12 => Just(0i64), 3 => -6i64..3]
}

fn range() -> impl Strategy<Value = PbRangeRequest> {
    let bounds = prop_oneof![6 => Just([0i64; 4]), 1 => prop::array::uniform4(prop_oneof![2 => Just(0i64), 1 => -5i64..2])];
    let order = prop_oneof![3 => Just((0, 0)), 2 => (0i32..3, 0i32..5)];
    let shape = (prop_oneof![2 => Just(0i64), 1 => 1i64..4], rarely(), rarely(), any::<bool>());
    (key(), end(), back(), bounds, order, shape).prop_map(
        |(
            key,
            range_end,
            revision,
            bounds,
            (sort_order, sort_target),
            (limit, keys_only, count_only, serializable),
        )| {
            PbRangeRequest {
                key,
                range_end,
                revision,
                limit,
                sort_order,
                sort_target,
                serializable,
                keys_only,
                count_only,
                min_mod_revision: bounds[0],
                max_mod_revision: bounds[1],
                min_create_revision: bounds[2],
                max_create_revision: bounds[3],
            }
        },
    )
}

fn delete() -> impl Strategy<Value = PbDeleteRequest> {
    (key(), end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| PbDeleteRequest {
        key,
        range_end,
        prev_kv,
    })
}

fn compare() -> impl Strategy<Value = PbCompare> {
    let target = prop_oneof![
        (0i64..4).prop_map(|n| (0, PbTargetUnion::Version(n))),
        (-6i64..1).prop_map(|n| (1, PbTargetUnion::CreateRevision(n))),
        (-6i64..1).prop_map(|n| (2, PbTargetUnion::ModRevision(n))),
        value().prop_map(|v| (3, PbTargetUnion::Value(v))),
        lease().prop_map(|n| (4, PbTargetUnion::Lease(n))),
    ];
    let ends = prop_oneof![5 => Just(Vec::new()), 1 => end()];
    (key(), ends, 0i32..4, target).prop_map(|(key, range_end, result, (target, union))| PbCompare {
        result,
        target,
        key,
        range_end,
        target_union: Some(union),
    })
}

fn operations(depth: u32) -> BoxedStrategy<Vec<PbTxnRequestOp>> {
    let plain = prop_oneof![
        3 => put().prop_map(PbTxnOpRequest::RequestPut),
        2 => range().prop_map(PbTxnOpRequest::RequestRange),
        2 => delete().prop_map(PbTxnOpRequest::RequestDeleteRange),
    ];
    let any_kind = if depth == 0 {
        plain.boxed()
    } else {
        prop_oneof![5 => plain, 1 => txn(depth - 1).prop_map(PbTxnOpRequest::RequestTxn)].boxed()
    };
    let operation = prop_oneof![40 => any_kind.prop_map(Some), 1 => Just(None)];
    prop::collection::vec(operation.prop_map(|request| PbTxnRequestOp { request }), 0..4).boxed()
}

fn txn(depth: u32) -> BoxedStrategy<PbTxnRequest> {
    (prop::collection::vec(compare(), 0..3), operations(depth), operations(depth))
        .prop_map(|(compare, success, failure)| {
            let mut txn = PbTxnRequest { compare, success, failure };
            if deletes_without_bound(&txn) {
                keeps_nothing(&mut txn);
            }
            txn
        })
        .boxed()
}

/// True if the transaction deletes all keys from some key on: etcd does not report such a delete as
/// a conflict with a put of the same transaction.
fn deletes_without_bound(txn: &PbTxnRequest) -> bool {
    txn.success.iter().chain(&txn.failure).any(|operation| match &operation.request {
        Some(PbTxnOpRequest::RequestDeleteRange(delete)) => delete.range_end == [0],
        Some(PbTxnOpRequest::RequestTxn(nested)) => deletes_without_bound(nested),
        _ => false,
    })
}

/// Makes puts keep neither the value nor the lease of their key: if the same transaction has
/// deleted that key, etcd 3.4 and 3.5 panic.
fn keeps_nothing(txn: &mut PbTxnRequest) {
    for operation in txn.success.iter_mut().chain(&mut txn.failure) {
        match &mut operation.request {
            Some(PbTxnOpRequest::RequestPut(put)) => (put.ignore_value, put.ignore_lease) = (false, false),
            Some(PbTxnOpRequest::RequestTxn(nested)) => keeps_nothing(nested),
            _ => {}
        }
    }
}

fn new_watch() -> impl Strategy<Value = NewWatch> {
    let filters = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(0i32..2, 1..3)];
    let start = prop_oneof![1 => Just(None), 3 => (-6i64..4).prop_map(Some)];
    let id = prop_oneof![4 => Just(0i64), 1 => 1i64..4];
    (key(), end(), start, filters, any::<bool>(), id).prop_map(
        |(key, range_end, start, filters, prev_kv, watch_id)| NewWatch {
            key,
            range_end,
            start,
            filters,
            prev_kv,
            watch_id,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => put().prop_map(Step::Put),
        6 => range().prop_map(Step::Range),
        4 => delete().prop_map(Step::Delete),
        10 => txn(2).prop_map(Step::Txn),
        2 => prop_oneof![4 => -6i64..1, 1 => 1i64..3].prop_map(Step::Compact),
        3 => (7i64..9, prop_oneof![5 => 100i64..200, 1 => Just(9_000_000_001i64)])
            .prop_map(|(id, ttl)| Step::Grant(PbLeaseGrantRequest { id, ttl })),
        2 => (7i64..10).prop_map(Step::Revoke),
        1 => (7i64..10).prop_map(Step::KeepAlive),
        2 => (7i64..10).prop_map(Step::TimeToLive),
        1 => Just(Step::Leases),
        4 => new_watch().prop_map(Step::Watch),
        1 => (0i64..4).prop_map(Step::CancelWatch),
        1 => Just(Step::Progress),
    ]
}

/// Formats a message on one line, with bytes as text.
fn short(message: &impl std::fmt::Debug) -> String {
    let text = format!("{message:?}");
    let mut out = String::new();
    let mut rest = text.as_str();
    // Lists of numbers are bytes here, except for the filters of a watcher, which are readable in
    // this form as well.
    while let Some(open) = rest.find('[') {
        let (before, list) = rest.split_at(open);
        out.push_str(before);
        let close = list.find(']').unwrap_or(list.len() - 1);
        let numbers: Result<Vec<u8>, _> =
            list[1..close].split(", ").filter(|n| !n.is_empty()).map(str::parse).collect();
        match numbers {
            Ok(bytes) => {
                out.push_str(&format!("\"{}\"", bytes.escape_ascii()));
                rest = &list[close + 1..];
            }
            Err(_) => {
                out.push('[');
                rest = &list[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The answer of a store to one step, without the parts that may differ: the member and the raft
/// term.
type Outcome = Result<String, Refused>;

/// A store, and one stream of watchers on it.
struct Subject {
    raw: Raw,
    stream: Option<WatchStream>,
    /// Everything sent to each watcher, in order.
    heard: BTreeMap<i64, Vec<Heard>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Created,
    Event(PbEvent),
    Cancelled { compact_revision: i64, reason: String },
    Progress,
}

impl Subject {
    fn new(endpoint: &str) -> Self {
        Self { raw: Raw::connect(endpoint), stream: None, heard: BTreeMap::new() }
    }

    async fn revision(&self) -> i64 {
        let request = PbRangeRequest { key: b"a".to_vec(), count_only: true, ..PbRangeRequest::default() };
        let answer: PbRangeResponse = self.raw.call("KV/Range", request).await.expect("a revision");
        revision(answer.header.as_ref())
    }

    /// Runs one step; `now` is the newest revision before it.
    async fn run(&mut self, step: &Step, now: i64) -> Outcome {
        match step {
            Step::Put(request) => {
                let answer = self.raw.call::<_, PbPutResponse>("KV/Put", request.clone()).await?;
                Ok(format!("{} {:?}", revision(answer.header.as_ref()), answer.prev_kv))
            }
            Step::Range(request) => {
                let request = at(request.clone(), now);
                let answer = self.raw.call::<_, PbRangeResponse>("KV/Range", request.clone()).await?;
                Ok(shown_range(&request, answer))
            }
            Step::Delete(request) => {
                let answer = self.raw.call::<_, PbDeleteResponse>("KV/DeleteRange", request.clone()).await?;
                let revision = revision(answer.header.as_ref());
                Ok(format!("{revision} {} {:?}", answer.deleted, answer.prev_kvs))
            }
            Step::Txn(request) => {
                let request = txn_at(request.clone(), now);
                let answer = self.raw.call::<_, PbTxnResponse>("KV/Txn", request.clone()).await?;
                Ok(shown_txn(&request, answer))
            }
            Step::Compact(offset) => {
                let request = PbCompactionRequest { revision: now + offset, physical: true };
                let answer = self.raw.call::<_, PbCompactionResponse>("KV/Compact", request).await?;
                Ok(revision(answer.header.as_ref()).to_string())
            }
            Step::Grant(request) => {
                let answer = self.raw.call::<_, PbLeaseGrantResponse>("Lease/LeaseGrant", *request).await?;
                Ok(format!("{} {} {}", revision(answer.header.as_ref()), answer.id, answer.ttl))
            }
            Step::Revoke(id) => {
                let request = PbLeaseRevokeRequest { id: *id };
                let answer = self.raw.call::<_, PbLeaseRevokeResponse>("Lease/LeaseRevoke", request).await?;
                Ok(revision(answer.header.as_ref()).to_string())
            }
            Step::KeepAlive(id) => {
                let request = PbLeaseKeepAliveRequest { id: *id };
                let answer: PbLeaseKeepAliveResponse =
                    self.raw.call_streaming("Lease/LeaseKeepAlive", request).await?;
                Ok(format!("{} {} {}", revision(answer.header.as_ref()), answer.id, answer.ttl))
            }
            Step::TimeToLive(id) => {
                let request = PbLeaseTimeToLiveRequest { id: *id, keys: true };
                let answer: PbLeaseTimeToLiveResponse =
                    self.raw.call("Lease/LeaseTimeToLive", request).await?;
                let keys: BTreeSet<_> = answer.keys.iter().collect();
                // Only the sign is compared, because the remaining time changes.
                let left = answer.ttl.signum();
                Ok(format!("{} {left} {} {keys:?}", revision(answer.header.as_ref()), answer.granted_ttl))
            }
            Step::Leases => {
                let answer: PbLeaseLeasesResponse =
                    self.raw.call("Lease/LeaseLeases", PbLeaseLeasesRequest {}).await?;
                let ids: BTreeSet<i64> = answer.leases.iter().map(|lease| lease.id).collect();
                Ok(format!("{} {ids:?}", revision(answer.header.as_ref())))
            }
            Step::Watch(watch) => self.create_watch(watch, now).await,
            Step::CancelWatch(id) => self.cancel_watch(*id).await,
            Step::Progress => self.progress().await,
        }
    }

    async fn send(&mut self, union: PbWatchRequestUnion) {
        match &self.stream {
            Some(stream) => stream.send(union).await,
            None => self.stream = Some(self.raw.watch(union).await),
        }
    }

    async fn next(&mut self) -> Result<PbWatchResponse, Refused> {
        self.stream.as_mut().expect("it is open").next().await
    }

    async fn create_watch(&mut self, watch: &NewWatch, now: i64) -> Outcome {
        let mut union = PbWatchRequestUnion::CreateRequest(Default::default());
        if let PbWatchRequestUnion::CreateRequest(request) = &mut union {
            request.key = watch.key.clone();
            request.range_end = watch.range_end.clone();
            request.start_revision = watch.start.map_or(0, |offset| (now + offset).max(1));
            request.filters = watch.filters.clone();
            request.prev_kv = watch.prev_kv;
            request.watch_id = watch.watch_id;
        }
        self.send(union).await;
        let answer = self.hear_until(|answer| answer.created).await?;
        Ok(format!(
            "{} {} {} {}",
            revision(answer.header.as_ref()),
            answer.watch_id,
            answer.canceled,
            answer.cancel_reason
        ))
    }

    async fn cancel_watch(&mut self, id: i64) -> Outcome {
        // A watcher that a compaction has cancelled may be cancelled once more.
        let is_cancelled = |heard: &Heard| matches!(heard, Heard::Cancelled { compact_revision: 0, .. });
        let live = |heard: &Vec<Heard>| !heard.iter().any(is_cancelled) && heard.contains(&Heard::Created);
        if !self.heard.get(&id).is_some_and(live) {
            return Ok("not there".into());
        }
        let mut union = PbWatchRequestUnion::CancelRequest(Default::default());
        if let PbWatchRequestUnion::CancelRequest(request) = &mut union {
            request.watch_id = id;
        }
        self.send(union).await;
        let answer = self.hear_until(|answer| answer.canceled && answer.watch_id == id).await?;
        Ok(revision(answer.header.as_ref()).to_string())
    }

    async fn progress(&mut self) -> Outcome {
        if self.stream.is_none() {
            return Ok("no stream".into());
        }
        self.send(PbWatchRequestUnion::ProgressRequest(Default::default())).await;
        let answer = self.hear_until(|answer| answer.watch_id == -1 && !answer.created).await?;
        Ok(revision(answer.header.as_ref()).to_string())
    }

    /// Receives answers until one satisfies `wanted`.
    async fn hear_until(
        &mut self,
        wanted: impl Fn(&PbWatchResponse) -> bool,
    ) -> Result<PbWatchResponse, Refused> {
        loop {
            let next = self.next();
            let answer = tokio::time::timeout(EVENTS_WITHIN, next)
                .await
                .map_err(|_| (-2, "no answer to a watch request".to_owned()))??;
            self.hear(&answer);
            if wanted(&answer) {
                return Ok(answer);
            }
        }
    }

    fn hear(&mut self, answer: &PbWatchResponse) {
        if answer.watch_id == -1 {
            return;
        }
        let heard = self.heard.entry(answer.watch_id).or_default();
        if answer.created {
            heard.push(Heard::Created);
        }
        heard.extend(answer.events.iter().cloned().map(Heard::Event));
        if answer.canceled {
            let (compact_revision, reason) = (answer.compact_revision, answer.cancel_reason.clone());
            heard.push(Heard::Cancelled { compact_revision, reason });
        }
        if !answer.created && !answer.canceled && answer.events.is_empty() {
            heard.push(Heard::Progress);
        }
    }

    /// Receives answers until every watcher got as many as in `other`, or until the time limit.
    async fn hear_as_much_as(&mut self, other: &BTreeMap<i64, Vec<Heard>>) {
        let counts = |heard: &BTreeMap<i64, Vec<Heard>>| -> BTreeMap<i64, usize> {
            heard.iter().map(|(id, heard)| (*id, heard.len())).collect()
        };
        let wanted = counts(other);
        let all = async {
            while self.stream.is_some() {
                let have = counts(&self.heard);
                if wanted.iter().all(|(id, count)| have.get(id).is_some_and(|n| n >= count)) {
                    return;
                }
                let Ok(answer) = self.next().await else { return };
                self.hear(&answer);
            }
        };
        // Missing answers show up in the comparison.
        let _ = tokio::time::timeout(EVENTS_WITHIN, all).await;
    }

    /// Receives everything that was written so far: the embedded store sends progress only after
    /// all earlier events.
    async fn hear_all(&mut self) {
        self.progress().await.expect("an answer");
    }

    /// Receives answers until none arrives for the time `wait`.
    async fn hear_what_is_there(&mut self, wait: Duration) {
        while self.stream.is_some() {
            let next = self.next();
            let Ok(Ok(answer)) = tokio::time::timeout(wait, next).await else { return };
            self.hear(&answer);
        }
    }

    /// Removes all keys, leases and watchers.
    async fn clean(&mut self) {
        self.stream = None;
        self.heard.clear();
        let leases: PbLeaseLeasesResponse =
            self.raw.call("Lease/LeaseLeases", PbLeaseLeasesRequest {}).await.expect("leases");
        for lease in leases.leases.iter().map(|lease| lease.id).collect::<BTreeSet<_>>() {
            let request = PbLeaseRevokeRequest { id: lease };
            let _: PbLeaseRevokeResponse =
                self.raw.call("Lease/LeaseRevoke", request).await.expect("revoked");
        }
        let all = PbDeleteRequest { key: vec![0], range_end: vec![0], prev_kv: false };
        let _: PbDeleteResponse = self.raw.call("KV/DeleteRange", all).await.expect("deleted");
    }
}

/// Makes relative revisions absolute. 0 stays 0: there it means the newest revision, or no bound.
fn at(mut request: PbRangeRequest, now: i64) -> PbRangeRequest {
    let absolute = |offset: i64| if offset == 0 { 0 } else { now + offset };
    request.revision = absolute(request.revision);
    request.min_mod_revision = absolute(request.min_mod_revision);
    request.max_mod_revision = absolute(request.max_mod_revision);
    request.min_create_revision = absolute(request.min_create_revision);
    request.max_create_revision = absolute(request.max_create_revision);
    request
}

fn txn_at(mut request: PbTxnRequest, now: i64) -> PbTxnRequest {
    for compare in &mut request.compare {
        if let Some(PbTargetUnion::CreateRevision(n) | PbTargetUnion::ModRevision(n)) =
            &mut compare.target_union
        {
            *n += now;
        }
    }
    for operation in request.success.iter_mut().chain(&mut request.failure) {
        operation.request = operation.request.take().map(|request| match request {
            PbTxnOpRequest::RequestRange(range) => PbTxnOpRequest::RequestRange(at(range, now)),
            PbTxnOpRequest::RequestTxn(txn) => PbTxnOpRequest::RequestTxn(txn_at(txn, now)),
            other => other,
        });
    }
    request
}

/// Formats the answer to a range. etcd's sort leaves the order of equal entries open, and thus
/// which of them a limit cuts off.
fn shown_range(request: &PbRangeRequest, answer: PbRangeResponse) -> String {
    let mut kvs = answer.kvs;
    let order = |kv: &PbKeyValue| match request.sort_target {
        1 => (kv.version, Vec::new()),
        2 => (kv.create_revision, Vec::new()),
        3 => (kv.mod_revision, Vec::new()),
        4 => (0, kv.value.clone()),
        _ => (0, Vec::new()),
    };
    if request.sort_target != 0 {
        if request.limit > 0 {
            let orders: Vec<_> = kvs.iter().map(order).collect();
            let keys_only = request.keys_only;
            let orders = if keys_only && request.sort_target == 4 { Vec::new() } else { orders };
            return format!("{} {} {orders:?}", answer.count, answer.more);
        }
        let before: Vec<_> = kvs.iter().map(order).collect();
        kvs.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key)));
        return format!("{} {} {before:?} {kvs:?}", answer.count, answer.more);
    }
    format!("{} {} {} {kvs:?}", revision(answer.header.as_ref()), answer.count, answer.more)
}

fn shown_txn(request: &PbTxnRequest, answer: PbTxnResponse) -> String {
    let operations = if answer.succeeded { &request.success } else { &request.failure };
    let mut text = format!("{} {}", revision(answer.header.as_ref()), answer.succeeded);
    for (operation, response) in operations.iter().zip(answer.responses) {
        text.push_str(" / ");
        text.push_str(&match (operation.request.as_ref(), response.response) {
            (Some(PbTxnOpRequest::RequestRange(request)), Some(PbTxnOpResponse::ResponseRange(answer))) => {
                shown_range(request, answer)
            }
            (Some(PbTxnOpRequest::RequestTxn(request)), Some(PbTxnOpResponse::ResponseTxn(answer))) => {
                format!("({})", shown_txn(request, answer))
            }
            (_, Some(PbTxnOpResponse::ResponsePut(answer))) => {
                format!("{:?} {:?}", header(answer.header), answer.prev_kv)
            }
            (_, Some(PbTxnOpResponse::ResponseDeleteRange(answer))) => {
                format!("{:?} {} {:?}", header(answer.header), answer.deleted, answer.prev_kvs)
            }
            (_, other) => format!("{other:?}"),
        });
    }
    text
}

/// Returns the fields of a nested header, or `None` if there is no header.
fn header(header: Option<PbResponseHeader>) -> Option<(u64, u64, i64, u64)> {
    header.map(|h| (h.cluster_id, h.member_id, h.revision, h.raft_term))
}

/// A real etcd and an embedded store that have received the same requests so far.
struct Pair {
    runtime: tokio::runtime::Runtime,
    etcd: Subject,
    solo: Subject,
    _processes: (Etcd, Solo),
}

static PAIR: Mutex<Option<Pair>> = Mutex::new(None);

impl Pair {
    fn new() -> Self {
        let processes = (Etcd::single_real(), Solo::in_memory());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _entered = runtime.enter();
        let etcd = Subject::new(&processes.0.endpoint(0));
        let solo = Subject::new(&processes.1.endpoint());
        drop(_entered);
        Self { runtime, etcd, solo, _processes: processes }
    }

    /// Runs a history on both stores; the error describes the first difference.
    fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        let (etcd, solo) = (&mut self.etcd, &mut self.solo);
        self.runtime.block_on(async {
            let mut watched = None;
            for (index, step) in steps.iter().enumerate() {
                let now = etcd.revision().await;
                if let (Step::Compact(_), Some(at)) = (step, watched) {
                    // A watcher that starts in the past lags behind until etcd's next round for
                    // such watchers.
                    tokio::time::sleep_until(at + LATE_WATCHERS_WITHIN).await;
                }
                if matches!(step, Step::CancelWatch(_) | Step::Compact(_)) {
                    // Events of earlier writes are received before the step.
                    solo.hear_all().await;
                    etcd.hear_as_much_as(&solo.heard).await;
                }
                let (printed, ours) = (etcd.run(step, now).await, solo.run(step, now).await);
                if printed != ours {
                    return Err(format!(
                        "step {index} at revision {now}: {step:?}\n etcd: {printed:?}\n solo: {ours:?}"
                    ));
                }
                if let Step::Watch(watch) = step {
                    if watch.start.is_some_and(|offset| offset <= 0) {
                        watched = Some(tokio::time::Instant::now());
                    }
                    solo.hear_all().await;
                    etcd.hear_as_much_as(&solo.heard).await;
                }
            }
            solo.hear_all().await;
            etcd.hear_as_much_as(&solo.heard).await;
            etcd.hear_what_is_there(Duration::from_millis(1)).await;
            if etcd.heard != solo.heard {
                let (theirs, ours) = (short(&etcd.heard), short(&solo.heard));
                return Err(format!("events\n etcd: {theirs}\n solo: {ours}"));
            }
            etcd.clean().await;
            solo.clean().await;
            Ok(())
        })
    }
}

fn same(steps: &[Step]) -> Result<(), String> {
    let mut guard = PAIR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pair = guard.get_or_insert_with(Pair::new);
    let result = pair.run(steps);
    if result.is_err() {
        // The stores may differ from now on.
        *guard = None;
    }
    result
}

#[test]
fn a_random_history_is_told_alike() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    // Each failing history needs a new pair of stores, which takes time.
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let histories = prop::collection::vec(step(), 1..30);
    let result = runner.run(&histories, |steps| same(&steps).map_err(TestCaseError::fail));
    *PAIR.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    if let Err(proptest::test_runner::TestError::Fail(why, steps)) = result {
        let steps: Vec<String> = steps.iter().map(short).collect();
        panic!("{why}\nthe shortest history that was found:\n{}", steps.join("\n"));
    }
}
