//! Reads what freezes and the limits of the rollout mean for one host.

use super::context::{Store, now};
use etcd_session::StoreError;
use planning::fleet::views::{ClaimView, HeldClaimView, HostRollout};
use planning::rollout::{Need, Obstacle, RolloutView, first_reads, second_reads};
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::plan::Phase;
use schema::records::Report;
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, Now};
use schema::verdict::{HostVerdict, WaitingOn};
use schema::writes::claims::FoundClaims;

/// Number of holders that are shown.
const HOLDERS_SHOWN: usize = 10;

/// Reads what the limits of the rollout mean for a host.
pub(super) async fn read(
    host: &HostName,
    snapshot: &KeySnapshot,
    store: &Store<'_>,
) -> Result<HostRollout, StoreError> {
    let held = FoundClaims::read(host, snapshot);
    let claims = held.held().iter().map(HeldClaimView::from).collect();
    let report = snapshot.get(&Key::Report(host.clone()));
    let report = report.and_then(|entry| codec::read::<Report>(&entry.value).ok());
    // A host that waits for a service is not at the limits yet.
    let waits = report.is_some_and(|report| match report.verdict {
        HostVerdict::Waiting { on } => {
            matches!(
                on,
                WaitingOn::Limit { .. }
                    | WaitingOn::Stage { .. }
                    | WaitingOn::Window { .. }
                    | WaitingOn::Operator { .. }
            )
        }
        _ => report.phase == Phase::Start,
    });
    let Some(instruction) = Instruction::find(snapshot).filter(|_| waits) else {
        return Ok(HostRollout { claims, ..HostRollout::default() });
    };
    let now = Now { boot: BootMillis(0), wall: now() };
    let found = read_rollout(host, &instruction, snapshot.revision, store).await?;
    let view = RolloutView::new(host, (instruction.order, &instruction.version), &found, now);
    // The report does not say whether the host needs claims; one that waits does.
    let obstacle = view.permit(&held, Need::Claims, now).err();
    let held_by = match &obstacle {
        Some(Obstacle::Full { limit, holders, .. }) => read_holders(limit, holders, found, store).await?,
        _ => Vec::new(),
    };
    let is_halted = matches!(obstacle, Some(Obstacle::Halted(_) | Obstacle::OverBudget { .. }));
    Ok(HostRollout {
        held_until: obstacle.as_ref().and_then(Obstacle::ends),
        held_back_by: obstacle.map(|obstacle| obstacle.to_string()),
        is_halted,
        claims,
        held_by,
    })
}

/// Returns the claims of a limit with what is known of their holders.
async fn read_holders(
    limit: &Limit,
    holders: &[HostName],
    found: KeySnapshot,
    store: &Store<'_>,
) -> Result<Vec<ClaimView>, StoreError> {
    let mut keys = vec![Key::Store];
    keys.extend(holders.iter().take(HOLDERS_SHOWN).flat_map(ClaimView::keys_of));
    let mut known = store.session.read_all(&keys, &[], Some(found.revision), store.deadline).await?;
    let range = Prefix::ClaimsOf(limit.clone()).to_string();
    known.entries.extend(found.entries.into_iter().filter(|(key, _)| key.starts_with(&range)));
    Ok(ClaimView::all(&known).take(HOLDERS_SHOWN).collect())
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
