//! The start of an update by a script. Under a rollout policy the answer "yes" of `pending_update` takes
//! the claims of the host; `update_own_info` at the desired version and a failed `update_own_status`
//! release them.

use crate::commands::context::{Store, now};
use crate::commands::rollout::host::read_rollout;
use crate::commands::rollout::look_after;
use crate::commands::rollout::record::write_record;
use crate::exit::Failure;
use crate::output;
use etcd_session::StoreError;
use planning::rollout::{Author, ClaimNeed, DriverSeen, RolloutView};
use schema::instruction::{Epoch, Instruction};
use schema::keys::Key;
use schema::names::{HostName, Token};
use schema::records::{HostClaims, Purpose, SCRIPT_INSTANCE};
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, Now, Span};
use schema::writes::claims::FoundClaims;
use schema::writes::host::StartGuard;
use schema::writes::one_shot::OneShot;
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of times that a start is tried if others start at the same time.
const TRIES: u32 = 5;
/// Time after which the claims of a script end if the host has no agent. A script that takes longer should
/// run beside an agent.
const LOST_AFTER: Span = Span(Duration::from_secs(60 * 60));

/// Puts a host without an agent on the roster, unless it is: limits and freezes of its role count it, and the rollout
/// waits for it. `found` holds its roster entry and the claim of its name.
pub(crate) async fn join(host: &HostName, found: &KeySnapshot, store: &Store<'_>) -> Result<(), StoreError> {
    let is_known =
        [Key::Host(host.clone()), Key::Live(host.clone())].iter().any(|key| found.get(key).is_some());
    if is_known {
        return Ok(());
    }
    let shot = OneShot { host: host.clone(), lease: 0, live_revision: None };
    match store.session.commit(&shot.join(now()), store.deadline).await {
        // A user whom nobody gave the rights of an agent: an operator adds the host.
        Ok(_) | Err(StoreError::PermissionDenied { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes the claims of a host, if its rollout has limits. `is_installed` is true if the host runs a version.
/// Returns why the host may not start now; `None` if
/// it may.
pub(crate) async fn claim(
    host: &HostName,
    is_installed: bool,
    store: &Store<'_>,
) -> Result<Option<String>, Failure> {
    let mut held_back = String::new();
    for _ in 0..TRIES {
        let (found, instruction) = read(host, store).await?;
        // The caller has answered for a store without a desired version.
        let Some(instruction) = instruction else { return Ok(None) };
        let (order, since) = (instruction.order, now());
        let clock = Now { boot: BootMillis(0), wall: since };
        let view = RolloutView::new(host, &instruction, &found, clock);
        // Without an agent there is no lease for the mark of the host that writes the record.
        if view.lacks_record() {
            write_record(&instruction, None, store).await?;
            continue;
        }
        // A script does not roll back.
        if let Some(halt) = view.halts(&instruction.version, Author { by: host.to_string(), at: since }).pop()
        {
            // Refused if somebody else did it.
            store.session.commit(&halt, store.deadline).await?;
            continue;
        }
        let held = FoundClaims::read(host, &found);
        // A host that runs nothing is not available, and one that was already being updated is not either.
        let is_older = |claims: &HostClaims| claims.is_for_update() && claims.rollout < order;
        let is_disturbed = held.claims.as_ref().is_some_and(is_older);
        let goes_on = held.claims.as_ref().is_some_and(HostClaims::is_for_update);
        let need = match is_installed && !is_disturbed {
            true if goes_on => ClaimNeed::Retake,
            true => ClaimNeed::Take,
            false => ClaimNeed::Nothing,
        };
        let permit = match view.permit(&held, need, clock) {
            Ok(permit) => permit,
            Err(obstacle) => {
                // Agents open the stages, if there are any.
                let opens = view.waits_for_stage()
                    && !view.waits_for_soak()
                    && view.driver_seen() == DriverSeen::Missing;
                if opens && look_after::go_on(host, order, store).await? {
                    continue;
                }
                // The answer does not depend on it.
                if let Some(holders) = view.holders()
                    && let Err(error) = look_after::holders(host, &holders, store).await
                {
                    output::warn(&format!("the holders of claims could not be looked after: {error}"));
                }
                return Ok(Some(obstacle.detail()));
            }
        };
        let Some(claims) = permit.claims else { return Ok(None) };
        let target = found.get(&Key::CurrentVersion);
        let guard = StartGuard {
            target_revision: order.revision,
            target_value: target.map(|entry| entry.value.clone()).unwrap_or_default(),
            scopes: view.scopes.clone(),
            roster_revision: view.roster_revision,
            rollout: Some(permit.guard),
        };
        let instance = Token::new(SCRIPT_INSTANCE).map_err(Failure::usage)?;
        let none = HostClaims::none(instance, order, since);
        let before = held.claims.as_ref().filter(|held| !held.claims.is_empty());
        let mut purposes = before.map_or_else(BTreeSet::new, |before| before.purposes.clone());
        purposes.insert(Purpose::Update);
        let claims = HostClaims { claims, purposes, lost_after: LOST_AFTER, ..none };
        let live = found.get(&Key::Live(host.clone())).map(|entry| entry.mod_revision);
        let shot = OneShot { host: host.clone(), lease: 0, live_revision: live };
        let transaction = shot.start(&guard, &claims, &found);
        if store.session.commit(&transaction, store.deadline).await?.applied {
            return Ok(None);
        }
        held_back = "other hosts start at the same time".into();
    }
    Ok(Some(held_back))
}

/// Reads everything that the start of a host depends on, at one revision.
async fn read(host: &HostName, store: &Store<'_>) -> Result<(KeySnapshot, Option<Instruction>), Failure> {
    let keys = [Key::CurrentVersion, Key::Store, Key::Live(host.clone()), Key::Claimed(host.clone())];
    let mut found = store.session.read_keys(&keys, store.deadline).await?;
    let epoch =
        Epoch::read(found.get(&Key::Store)).map_err(|error| Failure::cannot_tell(error.to_string()))?;
    let Ok(Some(instruction)) = epoch.instruction(found.get(&Key::CurrentVersion)) else {
        return Ok((found, None));
    };
    let rollout = read_rollout(host, &instruction, found.revision, store).await?;
    found.entries.extend(rollout.entries);
    Ok((found, Some(instruction)))
}
