//! `bundle`: fetches the bundle of a failure from the object store of the fleet, and unpacks it.

use super::fetched_bundle::{FetchFrom, ReportedFailure};
use crate::commands::answers;
use crate::commands::context::{Store, host_of};
use crate::commands::verb::{self, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::anyhow;
use archive::bundle::About;
use clap::Args;
use planning::calendar::rfc3339;
use schema::names::{Fingerprint, HostName, Version};
use schema::records::BundleLink;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Fetch what a host kept of its failed attempt
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// Host that failed
    #[arg(add = completion::hosts())]
    host: String,
    /// New directory for the files; bundle-HOST in this directory if it is not given
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    #[command(flatten)]
    from: FetchFrom,
}

impl Verb for Bundle {
    const SPEC: Spec = Spec {
        name: "bundle",
        group: Group::Fleet,
        about: verb::About::Operators,
        past: Past::Answers,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<BundleAnswer<'_>>),
        examples: &[(
            "orchestrate bundle web-7 --from file:///srv/bundles",
            "fetch what web-7 kept of its failed attempt",
        )],
    };

    /// Fetches the bundle of a host, or of another one that failed for the same cause.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = &host_of(&self.host)?;
        let bundle = ReportedFailure::read(host, store).await?.required_bundle(store).await?;
        let object = self.from.find(bundle, store.settings)?;
        let by = &object.bundle.host;
        if by != host {
            output::note(&format!("{by} failed for the same cause and uploaded the bundle"));
        }
        let into = self.into.unwrap_or_else(|| PathBuf::from(format!("bundle-{host}")));
        if into.exists() {
            return Err(Failure::usage(anyhow!(
                "{} exists; name a new directory with --into",
                into.display()
            )));
        }
        let about = object.unpack_into(&into)?;
        show(&about, &into, &object.bundle.link, output);
        Ok(Exit::Yes)
    }
}

fn show(about: &About, into: &Path, link: &BundleLink, output: &mut Output) {
    let About { host, version, attempt, failed_at, cause, .. } = about;
    let answer = BundleAnswer {
        host,
        version,
        attempt: *attempt,
        failed_at: rfc3339(*failed_at),
        cause: &cause.line,
        fingerprint: &cause.fingerprint,
        bundle: &link.url,
        digest: &link.sha256,
        directory: into,
    };
    output.sorted_answer(&answer, |output| {
        let at = rfc3339(*failed_at).unwrap_or_default();
        output.line(&format!("{host} failed at {version}, attempt {attempt}, {at}: {}", cause.line));
        output.line(&format!("its files are in {}", into.display()));
    });
}

/// What `bundle` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BundleAnswer<'a> {
    host: &'a HostName,
    version: &'a Version,
    attempt: u32,
    failed_at: Option<String>,
    cause: &'a str,
    fingerprint: &'a Fingerprint,
    bundle: &'a str,
    digest: &'a str,
    directory: &'a Path,
}
