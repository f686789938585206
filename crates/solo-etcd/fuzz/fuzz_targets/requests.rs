//! Checks that no sequence of requests makes the core panic. The first byte of each piece selects
//! the kind of request.
#![no_main]

use etcd_client::proto::{PbPutRequest, PbDeleteRequest, PbLeaseGrantRequest, PbCompactionRequest, PbTxnRequest, PbRangeRequest};
use prost::Message;
use solo_etcd::core::{Command, Store};

fn command(kind: u8, body: &[u8]) -> Option<Command> {
    Some(match kind % 6 {
        0 => Command::Put(PbPutRequest::decode(body).ok()?),
        1 => Command::DeleteRange(PbDeleteRequest::decode(body).ok()?),
        2 => Command::Txn(PbTxnRequest::decode(body).ok()?),
        3 => Command::Compact(PbCompactionRequest::decode(body).ok()?),
        4 => Command::LeaseGrant(PbLeaseGrantRequest::decode(body).ok()?),
        _ => Command::LeaseRevoke(i64::from(*body.first()?)),
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut store = Store::default();
    for piece in bytes.split(|byte| *byte == 0xff) {
        let Some((kind, body)) = piece.split_first() else { continue };
        if let Ok(request) = PbRangeRequest::decode(body) {
            let _ = store.range(&request);
        }
        if let Some(command) = command(*kind, body)
            && command.check().is_ok()
        {
            let before = store.revision();
            let _ = store.apply(command, 0);
            assert!(store.revision() >= before, "a revision never goes back");
        }
    }
});
