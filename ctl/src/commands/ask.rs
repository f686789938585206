//! Runs a verb that needs the store.

use super::context::{Store, now};
use super::past::question;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::seen_stores::{self, About};
use crate::settings::Settings;
use anyhow::Context;
use etcd_session::{Deadline, EndpointSource, Session, SessionConfig};
use schema::records::certificate_warning;
use std::pin::Pin;
use std::time::Duration;

/// The future of one verb. It is boxed, because on the stack each verb would take as much room as the largest
/// one: hundreds of KiB.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<Exit, Failure>> + 'a>>;

/// What a verb does with the store.
type Question = Box<dyn for<'a> FnOnce(&'a Store<'_>, &'a mut Output) -> Answer<'a>>;

/// Asks a question. `most` is the time limit of the verb, from which the time limit of a request to one member
/// follows. If the answer is about the fleet and the store is known to have gone back, it fails instead of giving an
/// answer.
pub(super) fn ask(
    settings: &Settings,
    most: Duration,
    about: About,
    output: &mut Output,
    question: Question,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    let exit = runtime.block_on(async {
        let session = match &settings.past {
            Some(question) => question::open(question, output)?,
            None => {
                for (file, end) in etcd_session::certificate_ends(&settings.session.tls) {
                    certificate_warning(&file, end, now()).iter().for_each(|warning| output::warn(warning));
                }
                Session::new(session_config(most, settings))?
            }
        };
        let store = Store::new(settings, session, Deadline::within(most));
        seen_stores::answer(settings, &store.session, store.deadline, about, question(&store, output)).await
    });
    // A name lookup or a read of standard input may still be blocked; its result is no longer
    // needed.
    runtime.shutdown_background();
    exit
}

/// Returns the configuration of the session. If the store may have several members, a silent one
/// must leave time to ask another.
fn session_config(most: Duration, settings: &Settings) -> SessionConfig {
    let mut config = settings.session.clone();
    if !matches!(&config.endpoints, EndpointSource::List(list) if list.len() == 1) {
        config.attempt_timeout = config.attempt_timeout.min(most / 2);
    }
    config
}
