//! Reads what freezes and the limits of the rollout mean for one host.

use crate::commands::context::{Store, now};
use etcd_session::StoreError;
use fleet::Fleet;
use fleet::views::{ClaimView, FullLimit, HOLDERS_SHOWN, HostRollout};
use planning::rollout::{RolloutView, end_reads, first_reads, second_reads};
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, Now};
use schema::writes::claims::FoundClaims;

/// Reads what the limits of the rollout mean for a host. What its verdict says is not read again; who holds a limit is
/// only if the hosts that the report names have gone since.
pub(crate) async fn read(
    host: &HostName,
    fleet: &Fleet,
    snapshot: &KeySnapshot,
    store: &Store<'_>,
) -> Result<HostRollout, StoreError> {
    let held = FoundClaims::read(host, snapshot);
    let Some(instruction) = HostRollout::waits_at_limits(host, snapshot) else {
        return Ok(HostRollout::of_claims(&held));
    };
    if let Some((rollout, full)) = HostRollout::of_verdict(fleet.verdict(host), &held) {
        let Some(full) = full else { return Ok(rollout) };
        let known = read_holders(&full, snapshot.revision, store).await?;
        if full.is_current(&known) {
            return Ok(HostRollout { held_by: shown(&full, &known), ..rollout });
        }
    }
    let mut found = read_rollout(host, &instruction, snapshot.revision, store).await?;
    let clock = Now { boot: BootMillis(0), wall: now() };
    let view = RolloutView::new(host, &instruction, &found, clock);
    if view.may_wait_for_hold() {
        let (keys, ranges) = end_reads(instruction.order);
        let more = store.session.read_all(&keys, &ranges, Some(found.revision), store.deadline).await?;
        found.entries.extend(more.entries);
    }
    let (rollout, full) = HostRollout::new(host, &held, &instruction, &found, now());
    let held_by = match full {
        Some(full) => shown(&full, &read_holders(&full, found.revision, store).await?),
        None => Vec::new(),
    };
    Ok(HostRollout { held_by, ..rollout })
}

/// Reads the claims of a limit, and what is known of their holders.
async fn read_holders(
    FullLimit { limit, holders }: &FullLimit,
    revision: i64,
    store: &Store<'_>,
) -> Result<KeySnapshot, StoreError> {
    let mut keys = vec![Key::Store];
    keys.extend(holders.iter().take(HOLDERS_SHOWN).flat_map(ClaimView::keys_of));
    let range = Prefix::ClaimsOf(limit.clone());
    store.session.read_all(&keys, &[range], Some(revision), store.deadline).await
}

fn shown(full: &FullLimit, known: &KeySnapshot) -> Vec<ClaimView> {
    ClaimView::of_limit(&full.limit, known).take(HOLDERS_SHOWN).collect()
}

/// Reads what a host needs to know of its rollout, as of a revision.
pub(crate) async fn read_rollout(
    host: &HostName,
    instruction: &Instruction,
    at: i64,
    store: &Store<'_>,
) -> Result<KeySnapshot, StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let mut found = session.read_together(&first_reads(host, instruction.order), Some(at), deadline).await?;
    let more = second_reads(host, instruction, &found);
    found.entries.extend(session.read_together(&more, Some(at), deadline).await?.entries);
    Ok(found)
}
