//! `services list` and `services show`.

use super::catalog::{read, view_of};
use crate::commands::answers;
use crate::commands::context::{Store, service_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use fleet::views::{ServiceView, ServicesView};
use schema::health::Level;
use schema::keys::{self, Key, Prefix};
use schema::names::HostName;

/// List the services
#[derive(Debug, Args)]
pub(crate) struct List;

impl Verb for List {
    const SPEC: Spec = Spec {
        name: "services list",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<ServicesView>),
        examples: &[("orchestrate services list", "all services with their instances")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let (view, revision) = read(store, None, None).await?;
        output.view(&ServicesView::new(&view, revision));
        Ok(Exit::Yes)
    }
}

/// Show the hosts of a service, and whether it works there
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of the service, for example web
    #[arg(add = completion::services())]
    service: String,
    /// Show each check that does not pass, with the last line of its output
    #[arg(long)]
    checks: bool,
}

impl Verb for Show {
    const SPEC: Spec = Spec {
        name: "services show",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<ServiceView>),
        examples: &[(
            "orchestrate services show web --checks",
            "where web runs, and which of its checks fail",
        )],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let service = &service_of(&self.service)?;
        let prefixes =
            [Prefix::Service(service.clone()), Prefix::Health(service.clone()), Prefix::Maintenances];
        let snapshot = store.session.read_ranges(&prefixes, store.deadline).await?;
        let catalog = view_of(&snapshot);
        let mark = |host: &HostName| {
            let entry = snapshot.get(&Key::Maintenance(host.clone()))?;
            let marks = keys::Maintenance::read(&entry.value).ok()?;
            marks.of(service).cloned()
        };
        let mut view = ServiceView::new(service, &catalog, mark, snapshot.revision)
            .ok_or_else(|| Failure::no(format!("no host has {service}")))?;
        if self.checks {
            let keys: Vec<Key> = view.instances.iter().map(|found| Key::Report(found.host.clone())).collect();
            let at = Some(snapshot.revision);
            let without = view.add_checks(&store.session.read_all(&keys, &[], at, store.deadline).await?);
            output::note_hosts("no report of checks", without.iter().map(HostName::as_str));
        }
        output.view(&view);
        Ok(Exit::of(catalog.count(service, Level::Functional) > 0))
    }
}
