//! Behaviour that clients rely on, checked in the same way on a real etcd and on the embedded
//! store.

use super::on_both;
use etcd_client::proto::{
    PbAlarmRequest, PbAlarmResponse, PbCompactionRequest, PbCompactionResponse, PbDeleteRequest,
    PbDeleteResponse, PbHashKvRequest, PbHashKvResponse, PbLeaseGrantRequest, PbLeaseGrantResponse,
    PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
    PbMemberListRequest, PbMemberListResponse, PbMemberPromoteRequest, PbMemberPromoteResponse,
    PbMemberRemoveRequest, PbMemberRemoveResponse, PbMemberUpdateRequest, PbMemberUpdateResponse,
    PbMoveLeaderRequest, PbMoveLeaderResponse, PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse,
    PbStatusRequest, PbStatusResponse, PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
    PbWatchRequestUnion, PbWatchResponse,
};
use std::time::{Duration, Instant};
use tests::raw::{Raw, Refused, WatchStream, revision};

async fn put(raw: &Raw, key: &str, value: &[u8], lease: i64) -> Result<PbPutResponse, Refused> {
    let (key, value) = (key.as_bytes().to_vec(), value.to_vec());
    raw.call("KV/Put", PbPutRequest { key, value, lease, ..PbPutRequest::default() }).await
}

async fn get(raw: &Raw, key: &str) -> PbRangeResponse {
    let request = PbRangeRequest { key: key.as_bytes().to_vec(), ..PbRangeRequest::default() };
    raw.call("KV/Range", request).await.expect("an answer")
}

async fn grant(raw: &Raw, id: i64, ttl: i64) -> Result<PbLeaseGrantResponse, Refused> {
    raw.call("Lease/LeaseGrant", PbLeaseGrantRequest { id, ttl }).await
}

/// Creates a watcher on a range and takes the answer to its creation from the stream.
async fn watch(raw: &Raw, key: &str, end: &str, start: i64, fragment: bool) -> WatchStream {
    let mut union = PbWatchRequestUnion::CreateRequest(Default::default());
    if let PbWatchRequestUnion::CreateRequest(request) = &mut union {
        request.key = key.into();
        request.range_end = end.into();
        request.start_revision = start;
        request.fragment = fragment;
    }
    let mut stream = raw.watch(union).await;
    assert!(stream.next().await.expect("created").created);
    stream
}

async fn next(stream: &mut WatchStream) -> PbWatchResponse {
    tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("in time").expect("an answer")
}

#[test]
fn a_lease_ends_with_all_its_keys_in_one_revision_and_not_while_it_is_kept_alive() {
    on_both(async |raw| {
        // The store returns its shortest time to live; it depends on etcd's election time-out,
        // which is short in tests.
        let shortest = grant(&raw, 0, 1).await.expect("granted");
        assert!((1..=2).contains(&shortest.ttl), "{}", shortest.ttl);
        // A slow machine keeps one alive that is longer.
        let granted = grant(&raw, 0, 5).await.expect("granted");
        assert_eq!(granted.ttl, 5);
        assert!(granted.id > 0);
        let mut stream = watch(&raw, "k", "l", 0, false).await;
        for key in ["k2", "k1", "k3"] {
            put(&raw, key, b"v", granted.id).await.expect("written");
        }
        // A put without a lease detaches the key from its lease.
        put(&raw, "k3", b"w", 0).await.expect("written");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(8) {
            let request = PbLeaseKeepAliveRequest { id: granted.id };
            let kept: PbLeaseKeepAliveResponse =
                raw.call_streaming("Lease/LeaseKeepAlive", request).await.expect("kept");
            assert_eq!(kept.ttl, granted.ttl);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert_eq!(get(&raw, "k1").await.kvs.len(), 1, "more than its time, and kept alive");
        let mut deleted = Vec::new();
        while deleted.len() < 2 {
            let answer = next(&mut stream).await;
            let events = answer.events.into_iter().filter(|e| e.r#type == 1);
            deleted.extend(events.filter_map(|e| e.kv).map(|kv| (kv.key, kv.mod_revision)));
        }
        assert_eq!(deleted[0].0, b"k1");
        assert_eq!((deleted[1].0.as_slice(), deleted[1].1), (&b"k2"[..], deleted[0].1));
        let left: PbLeaseTimeToLiveResponse = raw
            .call("Lease/LeaseTimeToLive", PbLeaseTimeToLiveRequest { id: granted.id, keys: true })
            .await
            .expect("an answer");
        assert_eq!((left.ttl, left.granted_ttl), (-1, 0));
        assert_eq!(get(&raw, "k3").await.kvs.len(), 1);
    });
}

#[test]
fn refusals_have_the_code_and_the_words_of_etcd() {
    on_both(async |raw| {
        let refused = |result: Result<PbPutResponse, Refused>| result.expect_err("refused");
        let key_missing = (3, "etcdserver: key is not provided".to_owned());
        assert_eq!(refused(put(&raw, "", b"v", 0).await), key_missing);
        let no_lease = (5, "etcdserver: requested lease not found".to_owned());
        assert_eq!(refused(put(&raw, "k", b"v", 404).await), no_lease);
        grant(&raw, 7, 60).await.expect("granted");
        let taken = (9, "etcdserver: lease already exists".to_owned());
        assert_eq!(grant(&raw, 7, 60).await.expect_err("refused"), taken);
        let too_long = (11, "etcdserver: too large lease TTL".to_owned());
        assert_eq!(grant(&raw, 8, 9_000_000_001).await.expect_err("refused"), too_long);
        let too_large = (3, "etcdserver: request is too large".to_owned());
        assert_eq!(refused(put(&raw, "k", &vec![0; 1600 * 1024], 0).await), too_large);
        let future = PbCompactionRequest { revision: 1_000_000, physical: false };
        let future = raw.call::<_, PbCompactionResponse>("KV/Compact", future).await;
        let not_yet = (11, "etcdserver: mvcc: required revision is a future revision".to_owned());
        assert_eq!(future.expect_err("refused"), not_yet);
    });
}

#[test]
fn a_transaction_takes_128_operations_and_nested_ones_what_is_left() {
    let puts = |from: usize, count: usize| -> Vec<PbTxnRequestOp> {
        let put = |n: usize| PbPutRequest { key: format!("k{n}").into_bytes(), ..PbPutRequest::default() };
        let operation = |n| PbTxnRequestOp { request: Some(PbTxnOpRequest::RequestPut(put(n))) };
        (from..from + count).map(operation).collect()
    };
    on_both(async |raw| {
        let send = async |success: Vec<PbTxnRequestOp>| {
            let request = PbTxnRequest { success, ..PbTxnRequest::default() };
            raw.call::<_, PbTxnResponse>("KV/Txn", request).await
        };
        let too_many = (3, "etcdserver: too many operations in txn request".to_owned());
        assert!(send(puts(0, 128)).await.expect("taken").succeeded);
        assert_eq!(send(puts(0, 129)).await.expect_err("refused"), too_many);
        for (outer, inner, fits) in [(64, 63, true), (64, 64, false), (126, 1, true), (127, 1, false)] {
            let nested = PbTxnRequest { success: puts(1000, inner), ..PbTxnRequest::default() };
            let mut success = puts(0, outer);
            success.push(PbTxnRequestOp { request: Some(PbTxnOpRequest::RequestTxn(nested)) });
            let answer = send(success).await;
            assert_eq!(
                answer.as_ref().err(),
                if fits { None } else { Some(&too_many) },
                "{outer} and {inner}"
            );
        }
    });
}

#[test]
fn a_large_answer_to_a_watcher_comes_in_fragments_where_it_may() {
    on_both(async |raw| {
        let first = revision(get(&raw, "k").await.header.as_ref()) + 1;
        for n in 0..40 {
            put(&raw, &format!("k{n:02}"), &vec![b'v'; 100_000], 0).await.expect("written");
        }
        let mut stream = watch(&raw, "k", "l", first, true).await;
        let (mut keys, mut largest) = (Vec::new(), 0);
        while keys.len() < 40 {
            let answer = next(&mut stream).await;
            largest = largest.max(prost::Message::encoded_len(&answer));
            keys.extend(answer.events.into_iter().filter_map(|e| e.kv).map(|kv| kv.key));
        }
        assert!(largest < 2 * 1024 * 1024, "{largest}");
        let expected: Vec<Vec<u8>> = (0..40).map(|n| format!("k{n:02}").into_bytes()).collect();
        assert_eq!(keys, expected);
    });
}

#[test]
fn a_slow_watcher_loses_nothing_and_one_behind_a_compaction_is_cancelled() {
    on_both(async |raw| {
        let first = revision(get(&raw, "k").await.header.as_ref()) + 1;
        let mut slow = watch(&raw, "k", "l", 0, false).await;
        let writes = 3_000;
        for n in 0..writes {
            put(&raw, "k", &vec![b'v'; 2_000 + n % 7], 0).await.expect("written");
        }
        let mut seen = Vec::new();
        while seen.len() < writes {
            let answer = next(&mut slow).await;
            seen.extend(answer.events.into_iter().filter_map(|e| e.kv).map(|kv| kv.mod_revision));
        }
        let expected: Vec<i64> = (first..first + writes as i64).collect();
        assert_eq!(seen, expected);
        let request = PbCompactionRequest { revision: first + 100, physical: true };
        let _: PbCompactionResponse = raw.call("KV/Compact", request).await.expect("compacted");
        let mut late = watch(&raw, "k", "l", first + 5, false).await;
        let answer = next(&mut late).await;
        assert!(answer.canceled);
        assert_eq!(answer.compact_revision, first + 100);
    });
}

#[test]
fn a_watcher_on_the_future_hears_nothing_before() {
    on_both(async |raw| {
        let now = revision(get(&raw, "k").await.header.as_ref());
        let mut stream = watch(&raw, "k", "", now + 3, false).await;
        for _ in 0..4 {
            put(&raw, "k", b"v", 0).await.expect("written");
        }
        let mut heard = Vec::new();
        while heard.len() < 2 {
            let answer = next(&mut stream).await;
            heard.extend(answer.events.into_iter().filter_map(|e| e.kv).map(|kv| kv.mod_revision));
        }
        assert_eq!(heard, [now + 3, now + 4]);
    });
}

#[test]
fn a_client_that_asks_nothing_more_still_hears() {
    on_both(async |raw| {
        let mut stream = watch(&raw, "k", "", 0, false).await;
        stream.ask_nothing_more();
        // Gives the store time to see the end of the requests.
        get(&raw, "k").await;
        put(&raw, "k", b"v", 0).await.expect("written");
        assert_eq!(next(&mut stream).await.events.len(), 1);
    });
}

#[test]
fn one_member_says_who_and_how_it_is() {
    on_both(async |raw| {
        let status: PbStatusResponse =
            raw.call("Maintenance/Status", PbStatusRequest {}).await.expect("a status");
        let header = status.header.expect("a header");
        assert_eq!(status.leader, header.member_id);
        assert!(header.cluster_id != 0 && header.raft_term > 0 && status.raft_term == header.raft_term);
        assert!(status.version.starts_with("3."), "{}", status.version);
        let members: PbMemberListResponse =
            raw.call("Cluster/MemberList", PbMemberListRequest::default()).await.expect("members");
        assert_eq!(members.members.len(), 1);
        assert_eq!(members.members[0].id, header.member_id);
        // The embedded store omits the scheme: see docs/solo-etcd.md.
        let url = members.members[0].client_ur_ls[0].trim_start_matches("http://");
        assert!(url.starts_with("127.0.0.1:"), "{url}");
        put(&raw, "k", b"v", 0).await.expect("written");
        let hash = async || -> PbHashKvResponse {
            raw.call("Maintenance/HashKV", PbHashKvRequest { revision: 0 }).await.expect("a hash")
        };
        let before = hash().await.hash;
        assert_eq!(hash().await.hash, before);
        let all = PbDeleteRequest { key: b"k".to_vec(), ..PbDeleteRequest::default() };
        let _: PbDeleteResponse = raw.call("KV/DeleteRange", all).await.expect("deleted");
        assert_ne!(hash().await.hash, before);
    });
}

/// Calls a method that changes the members until the store answers, and returns its refusal.
///
/// etcd turns such a change into an empty entry while an earlier change is not applied yet (raft
/// allows one at a time), and then never answers: the caller has to ask again.
async fn refused_change<Q, A>(raw: &Raw, method: &str, request: Q) -> Refused
where
    Q: prost::Message + Clone + 'static,
    A: prost::Message + std::fmt::Debug + Default + 'static,
{
    for _ in 0..10 {
        let answer = raw.call::<Q, A>(method, request.clone());
        if let Ok(answer) = tokio::time::timeout(Duration::from_secs(5), answer).await {
            return answer.expect_err("there is no other member");
        }
    }
    panic!("{method}: no answer to ten requests of 5 s each");
}

#[test]
fn the_one_member_leads_already_and_there_is_no_other() {
    on_both(async |raw| {
        let members: PbMemberListResponse =
            raw.call("Cluster/MemberList", PbMemberListRequest::default()).await.expect("members");
        let own = members.members[0].id;
        let lead = async |target_id| -> Result<PbMoveLeaderResponse, Refused> {
            raw.call("Maintenance/MoveLeader", PbMoveLeaderRequest { target_id }).await
        };
        lead(own).await.expect("it leads");
        let refused = lead(own ^ 1).await.expect_err("nobody");
        assert_eq!(refused, (9, "etcdserver: bad leader transferee".to_owned()));
        let unknown = (5, "etcdserver: member not found".to_owned());
        let id = own ^ 1;
        let update = PbMemberUpdateRequest { id, peer_ur_ls: vec!["http://127.0.0.1:1".into()] };
        let updated = refused_change::<_, PbMemberUpdateResponse>(&raw, "Cluster/MemberUpdate", update).await;
        assert_eq!(updated, unknown);
        let remove = PbMemberRemoveRequest { id };
        let removed = refused_change::<_, PbMemberRemoveResponse>(&raw, "Cluster/MemberRemove", remove).await;
        assert_eq!(removed, unknown);
        let promote = PbMemberPromoteRequest { id };
        let promoted =
            refused_change::<_, PbMemberPromoteResponse>(&raw, "Cluster/MemberPromote", promote).await;
        assert_eq!(promoted, unknown);
    });
}

#[test]
fn the_alarm_for_space_stops_puts_and_grants_and_nothing_else() {
    const ACTIVATE: i32 = 1;
    const DEACTIVATE: i32 = 2;
    const NO_SPACE: i32 = 1;
    on_both(async |raw| {
        put(&raw, "k", b"v", 0).await.expect("written");
        grant(&raw, 7, 60).await.expect("granted");
        let alarm = async |action| -> PbAlarmResponse {
            let request = PbAlarmRequest { action, member_id: 0, alarm: NO_SPACE };
            raw.call("Maintenance/Alarm", request).await.expect("an answer")
        };
        assert_eq!(alarm(ACTIVATE).await.alarms.len(), 1);
        let full = (8, "etcdserver: mvcc: database space exceeded".to_owned());
        assert_eq!(put(&raw, "k", b"w", 0).await.expect_err("refused"), full);
        assert_eq!(grant(&raw, 8, 60).await.expect_err("refused"), full);
        assert_eq!(get(&raw, "k").await.kvs[0].value, b"v");
        let kept: PbLeaseKeepAliveResponse = raw
            .call_streaming("Lease/LeaseKeepAlive", PbLeaseKeepAliveRequest { id: 7 })
            .await
            .expect("kept");
        assert_eq!(kept.ttl, 60);
        let one = PbDeleteRequest { key: b"k".to_vec(), ..PbDeleteRequest::default() };
        let deleted: PbDeleteResponse = raw.call("KV/DeleteRange", one).await.expect("deleted");
        assert_eq!(deleted.deleted, 1);
        assert_eq!(alarm(0).await.alarms.len(), 1);
        alarm(DEACTIVATE).await;
        assert!(alarm(0).await.alarms.is_empty());
        put(&raw, "k", b"w", 0).await.expect("written");
    });
}
