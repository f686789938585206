//! Records: commands and the parts of a snapshot, as bytes. Messages of etcd's API are written in
//! their wire format, the rest in fixed widths, little-endian.

use crate::core::{Command, Summary, Version};
use etcd_client::proto::{
    PbCompactionRequest, PbDeleteRequest, PbKeyValue, PbLeaseGrantRequest, PbPutRequest, PbTxnRequest,
};
use prost::Message;

/// Identity of this store. It is random and created once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Identity {
    /// Id of the cluster, of which this store is the only member.
    pub(crate) cluster_id: u64,
    /// Id of the member.
    pub(crate) member_id: u64,
}

impl Identity {
    /// Returns a new identity.
    pub(crate) fn random() -> Self {
        Self { cluster_id: random(), member_id: random() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Command(Command),
    Identity(Identity),
    Summary(Summary),
    /// Id of a lease and its time to live in seconds.
    Lease(i64, i64),
    Version(Vec<u8>, Version),
    /// The snapshot is complete; commands follow.
    SnapshotEnd,
}

const PUT: u8 = 1;
const DELETE_RANGE: u8 = 2;
const TXN: u8 = 3;
const COMPACT: u8 = 4;
const LEASE_GRANT: u8 = 5;
const LEASE_REVOKE: u8 = 6;
const NO_SPACE: u8 = 7;
const START: u8 = 8;
const IDENTITY: u8 = 16;
const SUMMARY: u8 = 17;
const LEASE: u8 = 18;
const VERSION: u8 = 19;
const SNAPSHOT_END: u8 = 20;

/// Appends a command as a record: length, kind and body.
pub(crate) fn write_command(command: &Command, out: &mut Vec<u8>) {
    match command {
        Command::Put(request) => message(PUT, request, out),
        Command::DeleteRange(request) => message(DELETE_RANGE, request, out),
        Command::Txn(request) => message(TXN, request, out),
        Command::Compact(request) => message(COMPACT, request, out),
        Command::LeaseGrant(request) => message(LEASE_GRANT, request, out),
        Command::LeaseRevoke(id) => fixed(LEASE_REVOKE, &[&id.to_le_bytes()], out),
        Command::NoSpace(raised) => fixed(NO_SPACE, &[&[u8::from(*raised)]], out),
        Command::Start => fixed(START, &[], out),
    }
}

pub(crate) fn write_identity(identity: Identity, out: &mut Vec<u8>) {
    fixed(IDENTITY, &[&identity.cluster_id.to_le_bytes(), &identity.member_id.to_le_bytes()], out);
}

pub(crate) fn write_summary(summary: &Summary, out: &mut Vec<u8>) {
    fixed(
        SUMMARY,
        &[
            &summary.revision.to_le_bytes(),
            &summary.compacted.to_le_bytes(),
            &[u8::from(summary.no_space)],
            &summary.raft_term.to_le_bytes(),
            &summary.applied.to_le_bytes(),
        ],
        out,
    );
}

pub(crate) fn write_lease(id: i64, seconds: i64, out: &mut Vec<u8>) {
    fixed(LEASE, &[&id.to_le_bytes(), &seconds.to_le_bytes()], out);
}

pub(crate) fn write_version(key: &[u8], version: &Version, out: &mut Vec<u8>) {
    let stored = PbKeyValue {
        key: key.to_vec(),
        create_revision: version.created,
        mod_revision: version.revision,
        version: version.version,
        value: version.value.to_vec(),
        lease: version.lease,
    };
    fixed(VERSION, &[&version.sub.to_le_bytes(), &stored.encode_to_vec()], out);
}

pub(crate) fn write_snapshot_end(out: &mut Vec<u8>) {
    fixed(SNAPSHOT_END, &[], out);
}

fn message(kind: u8, body: &impl Message, out: &mut Vec<u8>) {
    // The size limit of a request is far below the largest length.
    let length = u32::try_from(body.encoded_len() + 1).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind);
    // A `Vec` grows as needed, so encoding into it cannot fail.
    let _ = body.encode(out);
}

fn fixed(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    out.push(kind);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Reads the records of a frame.
///
/// # Errors
/// Returns what is wrong with the first record that cannot be read.
pub(crate) fn read_all(mut bytes: &[u8]) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or("a record without its length")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (record, rest) = rest.split_at_checked(length).ok_or("a record longer than its frame")?;
        records.push(read(record)?);
        bytes = rest;
    }
    Ok(records)
}

fn read(record: &[u8]) -> Result<Record, String> {
    fn decode<M: Message + Default>(body: &[u8]) -> Result<M, String> {
        M::decode(body).map_err(|error| error.to_string())
    }
    let (kind, body) = record.split_first().ok_or("an empty record")?;
    let mut fields = Fields(body);
    Ok(match *kind {
        PUT => Record::Command(Command::Put(decode::<PbPutRequest>(body)?)),
        DELETE_RANGE => Record::Command(Command::DeleteRange(decode::<PbDeleteRequest>(body)?)),
        TXN => Record::Command(Command::Txn(decode::<PbTxnRequest>(body)?)),
        COMPACT => Record::Command(Command::Compact(decode::<PbCompactionRequest>(body)?)),
        LEASE_GRANT => Record::Command(Command::LeaseGrant(decode::<PbLeaseGrantRequest>(body)?)),
        LEASE_REVOKE => Record::Command(Command::LeaseRevoke(fields.number()?)),
        NO_SPACE => Record::Command(Command::NoSpace(fields.flag()?)),
        START => Record::Command(Command::Start),
        IDENTITY => {
            Record::Identity(Identity { cluster_id: fields.unsigned()?, member_id: fields.unsigned()? })
        }
        SUMMARY => Record::Summary(Summary {
            revision: fields.number()?,
            compacted: fields.number()?,
            no_space: fields.flag()?,
            raft_term: fields.unsigned()?,
            applied: fields.unsigned()?,
        }),
        LEASE => Record::Lease(fields.number()?, fields.number()?),
        VERSION => {
            let sub = i32::from_le_bytes(*fields.take::<4>()?);
            let stored: PbKeyValue = decode(fields.0)?;
            let version = Version {
                revision: stored.mod_revision,
                sub,
                created: stored.create_revision,
                version: stored.version,
                lease: stored.lease,
                value: stored.value.into_boxed_slice(),
            };
            Record::Version(stored.key, version)
        }
        SNAPSHOT_END => Record::SnapshotEnd,
        other => return Err(format!("a record of the unknown kind {other}")),
    })
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], String> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or("a record that is cut short")?;
        self.0 = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<i64, String> {
        self.take().map(|bytes| i64::from_le_bytes(*bytes))
    }

    fn unsigned(&mut self) -> Result<u64, String> {
        self.take().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn flag(&mut self) -> Result<bool, String> {
        self.take::<1>().map(|[byte]| *byte != 0)
    }
}

/// Returns a random number that is not 0.
pub(super) fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|error| panic!("no randomness from the kernel: {error}")).max(1)
}
