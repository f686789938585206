//! When two states of the model are the same: when the same follows from them.

use crate::model::{FIRST_REVISION, Model, ModelHost, Written};
use planning::host::Brakes;
use schema::keys::{Key, Prefix};
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

/// The keys that change. Nobody reads reports and events, and a host without its report writes it again.
const RANGES: [Prefix; 9] = [
    Prefix::RunningVersions,
    Prefix::Statuses,
    Prefix::Announced,
    Prefix::Freezes,
    Prefix::Rollouts,
    Prefix::Progress,
    Prefix::Claims,
    Prefix::Claimed,
    Prefix::Queues,
];

/// Returns a number that is the same for states from which the same follows.
pub(crate) fn digest(model: &Model) -> u64 {
    let written = model.written.get_or_init(|| Rc::new(written(model)));
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(written.digest);
    for host in &model.hosts {
        let of_host = host.digest.get().unwrap_or_else(|| digest_of(host, &model.named));
        host.digest.set(Some(of_host));
        hasher.write_u64(of_host);
        // A start compares that nobody failed since the view.
        if let Brakes::Known(view) = host.brakes.known() {
            let is_newer = |(order, at): &(_, i64)| *order == view.order && *at > view.revision;
            hasher.write_u8(u8::from(written.failures.iter().any(is_newer)));
        }
    }
    hasher.write_u32(model.kills_left);
    hasher.write_u8(u8::from(model.may_freeze) + 2 * u8::from(model.may_trigger));
    hasher.finish()
}

/// Returns what states with this store have in common.
fn written(model: &Model) -> Written {
    let mut text = Canonical::new(&model.named);
    let mut failures = Vec::new();
    for (key, entry) in model.store.read_all(&[Key::CurrentVersion], &RANGES).entries {
        let _ = write!(text, "{key} ");
        text.take(&entry.value);
        if let Ok(Key::Failed(order, _)) = Key::parse(&key) {
            failures.push((order, entry.mod_revision));
        }
    }
    let _ = write!(text, "{:?}", model.laws.limits);
    Written { digest: text.finish(), failures }
}

fn digest_of(host: &ModelHost, named: &[i64]) -> u64 {
    let mut text = Canonical::new(named);
    let mut state = host.machine.disk.journal.clone();
    // By these a host judges whether the store went back.
    if let Some(memory) = state.as_mut().and_then(|state| state.store.as_mut()) {
        (memory.revision, memory.report_revision) = (0, None);
    }
    let disk = &host.machine.disk;
    let seen = host.seen.as_ref().map(|seen| &seen.entries);
    let _ = write!(text, "{:?}", (&state, &disk.version_file, &host.machine.truth, seen));
    match host.brakes.known() {
        Brakes::Known(view) => {
            let mut view = view.clone();
            view.revision = 0;
            let _ = write!(text, "{view:?}");
        }
        other => drop(write!(text, "{other:?}")),
    }
    text.finish()
}

/// Hashes texts in which each revision is replaced by its number among those that have a name: the revisions of
/// instructions, records and the policy. Nobody compares the others with what he read earlier, except for those of
/// failures.
struct Canonical<'a> {
    hasher: DefaultHasher,
    named: &'a [i64],
    bytes: Vec<u8>,
}

impl<'a> Canonical<'a> {
    fn new(named: &'a [i64]) -> Self {
        Self { hasher: DefaultHasher::new(), named, bytes: Vec::with_capacity(8 * 1024) }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(mut self) -> u64 {
        let bytes = &self.bytes;
        let (mut at, mut from) = (0, 0);
        while at < bytes.len() {
            let begin = at;
            let mut number = 0_i64;
            while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
                number = number.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
                at += 1;
            }
            if (FIRST_REVISION..2 * FIRST_REVISION).contains(&number) {
                self.hasher.write(&bytes[from..begin]);
                let place = self.named.iter().position(|named| *named == number);
                self.hasher.write_usize(place.unwrap_or(usize::MAX));
                from = at;
            }
            at += usize::from(at == begin);
        }
        self.hasher.write(&bytes[from..]);
        self.hasher.finish()
    }
}

impl Write for Canonical<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.take(text.as_bytes());
        Ok(())
    }
}
