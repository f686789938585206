//! Questions about the past: `--recording` and `--at`. The recorded keys become a store in this process, so that a verb
//! reads the past as it reads the present.

use super::moment::find;
use crate::commands::context;
use crate::exit::Failure;
use crate::output::{self, Output};
use crate::past::PastQuestion;
use archive::recording::RecordedEntry;
use etcd_session::Session;
use solo_etcd::frozen::{Frozen, KeyValue};

/// Reads the recording. Returns a session with the store as it was, and says in the output which moment that is.
pub(crate) fn open(question: &PastQuestion, output: &mut Output) -> Result<Session, Failure> {
    let PastQuestion { recording, now, .. } = question;
    let (past, _, _) = find(question)?;
    past.problems.iter().for_each(|problem| output::warn(problem));
    let now = now.unwrap_or_else(|| past.present());
    context::set_now(now);
    let view = past.view(now, &recording.name, env!("CARGO_PKG_VERSION"));
    view.erased.iter().for_each(|mark| output::warn(mark));
    output::note(&view.sentence());
    output.set_past(view);
    let keys = past.keys.into_iter().map(|(key, entry)| key_value(key, entry));
    Ok(Session::through(Frozen::new(past.moment.revision, keys)))
}

fn key_value(key: String, entry: RecordedEntry) -> KeyValue {
    let entry = entry.into_entry();
    KeyValue {
        key: key.into_bytes(),
        value: entry.value,
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        version: entry.version,
        lease: entry.lease,
    }
}
