//! Reads what freezes and the limits of the rollout mean for one host.

use super::context::{Store, now};
use etcd_session::StoreError;
use planning::fleet::views::{ClaimView, FullLimit, HOLDERS_SHOWN, HostRollout};
use planning::rollout::{RolloutView, end_reads, first_reads, second_reads};
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, Now};
use schema::writes::claims::FoundClaims;

/// Reads what the limits of the rollout mean for a host.
pub(super) async fn read(
    host: &HostName,
    snapshot: &KeySnapshot,
    store: &Store<'_>,
) -> Result<HostRollout, StoreError> {
    let held = FoundClaims::read(host, snapshot);
    let Some(instruction) = HostRollout::waits_at_limits(host, snapshot) else {
        return Ok(HostRollout::of_claims(&held));
    };
    let mut found = read_rollout(host, &instruction, snapshot.revision, store).await?;
    let clock = Now { boot: BootMillis(0), wall: now() };
    let view = RolloutView::new(host, (instruction.order, &instruction.version), &found, clock);
    if view.may_wait_for_hold() {
        let (keys, ranges) = end_reads(instruction.order);
        let more = store.session.read_all(&keys, &ranges, Some(found.revision), store.deadline).await?;
        found.entries.extend(more.entries);
    }
    let (rollout, full) = HostRollout::new(host, &held, &instruction, &found, now());
    let held_by = match full {
        Some(full) => read_holders(&full, found, store).await?,
        None => Vec::new(),
    };
    Ok(HostRollout { held_by, ..rollout })
}

/// Returns the claims of a limit with what is known of their holders.
async fn read_holders(
    FullLimit { limit, holders }: &FullLimit,
    found: KeySnapshot,
    store: &Store<'_>,
) -> Result<Vec<ClaimView>, StoreError> {
    let mut keys = vec![Key::Store];
    keys.extend(holders.iter().take(HOLDERS_SHOWN).flat_map(ClaimView::keys_of));
    let mut known = store.session.read_all(&keys, &[], Some(found.revision), store.deadline).await?;
    let range = Prefix::ClaimsOf(limit.clone()).to_string();
    known.entries.extend(found.entries.into_iter().filter(|(key, _)| key.starts_with(&range)));
    Ok(ClaimView::of_limit(limit, &known).take(HOLDERS_SHOWN).collect())
}

/// Reads what a host needs to know of its rollout, as of a revision.
pub(super) async fn read_rollout(
    host: &HostName,
    instruction: &Instruction,
    at: i64,
    store: &Store<'_>,
) -> Result<KeySnapshot, StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let mut found = session.read_together(&first_reads(host, instruction.order), Some(at), deadline).await?;
    let more = second_reads(host, (instruction.order, &instruction.version), &found);
    found.entries.extend(session.read_together(&more, Some(at), deadline).await?.entries);
    Ok(found)
}
