//! The fleet as a whole: `status` and `unaccounted`.

use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::fleet;
use crate::commands::rollout::start;
use crate::commands::rollout::status;
use crate::commands::selection::{Selection, refuse_unknown};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::commands::watch::{self, Repeat};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::seen_stores;
use ::fleet::FleetState;
use ::fleet::views::{MaintenanceView, SilentService, StatusParts, StatusView, UnaccountedView};
use clap::Args;
use etcd_session::StoreError;
use schema::keys::Prefix;

/// Show the state of the fleet, and what is wrong
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show it again whenever it changes, until it is interrupted
    #[arg(long)]
    watch: bool,
}

impl Verb for Status {
    const SPEC: Spec = Spec {
        name: "status",
        group: Group::Fleet,
        about: About::SelfChecked,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<StatusView>),
        examples: &[
            ("orchestrate status", "one word for the fleet, and what is wrong"),
            ("orchestrate status --watch", "show it again whenever it changes"),
            ("orchestrate status -o json", "the same for a program"),
        ],
    };

    fn past(&self) -> Past {
        if self.watch { Past::Waits } else { Self::SPEC.past }
    }

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { watch } = self;
        let repeat = Repeat::read(watch, None)?;
        watch::repeat(repeat, store, output, async |store, output| {
            Ok(watch::Answer { exit: status_once(store, output).await?, is_final: false })
        })
        .await
    }
}

async fn status_once(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let alarms = seen_stores::alarms(store.settings, &store.session, store.deadline);
    let reads = async {
        let (mut fleet, revision) = fleet::read(store, None, store.deadline).await?;
        fleet::read_wait_causes(&mut fleet, revision, store).await?;
        Ok::<_, StoreError>((fleet, revision, parts(store, revision).await?))
    };
    // The alarms alone may take all of the time.
    let (read, alarms) = tokio::join!(reads, alarms);
    let (fleet, revision, parts) = read?;
    fleet::print_warnings(&fleet);
    fleet::warn_of_unconfirmed_listings(&fleet);
    let (alarms, doubt) = match alarms {
        Ok(alarms) => (alarms, None),
        Err(error) => (None, Some(seen_stores::unknown_alarms(&error))),
    };
    let parts = StatusParts { alarms, doubt, ..parts };
    let view = StatusView::new(&fleet, parts, revision);
    output.answer(&view, |output| output.raw(view.text(output::width()).as_str()));
    if let Some(why) = view.unknown_reason(&fleet) {
        output::note(&format!("unknown: {why}"));
    }
    Ok(match view.fleet {
        FleetState::Settled => Exit::Yes,
        FleetState::Updating | FleetState::Failing => Exit::No,
        FleetState::Unknown => Exit::CannotTell,
    })
}

/// Reads what the status shows besides the verdicts and the alarms.
async fn parts(store: &Store<'_>, revision: i64) -> Result<StatusParts, StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let (records, healths, maintenances, failures) = tokio::try_join!(
        session.read_key_list(&Prefix::Services, Some(revision), deadline),
        session.read_key_list(&Prefix::HealthAll, Some(revision), deadline),
        session.read_all(&[], &[Prefix::Maintenances], Some(revision), deadline),
        start::read_failures(Some(revision), store),
    )?;
    let silent = SilentService::all(records.leased_suffixes(), healths.suffixes());
    let maintenance = MaintenanceView::all(&maintenances);
    let failures = failures.map(|(failures, _)| failures);
    let outlook = if failures.as_ref().is_some_and(|failures| !failures.has_ended) {
        status::outlook(revision, store).await?
    } else {
        None
    };
    Ok(StatusParts { alarms: None, doubt: None, silent, maintenance, failures, outlook })
}

/// List the unaccounted hosts: late, lost or never seen
#[derive(Debug, Args)]
pub(crate) struct Unaccounted {
    #[command(flatten)]
    selection: Selection,
}

impl Verb for Unaccounted {
    const SPEC: Spec = Spec {
        name: "unaccounted",
        group: Group::Fleet,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<UnaccountedView>),
        examples: &[("orchestrate unaccounted", "which hosts are late, lost or were never seen")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let filter = self.selection.filter(Vec::new())?;
        let (fleet, revision) = fleet::read(store, None, store.deadline).await?;
        fleet::print_warnings(&fleet);
        refuse_unknown(&filter, &fleet)?;
        let view = UnaccountedView::new(&fleet, &filter, revision);
        output.answer(&view, |output| output.raw(view.text(output::width()).as_str()));
        Ok(Exit::of(view.unaccounted.is_empty()))
    }
}
