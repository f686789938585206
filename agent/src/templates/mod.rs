//! Files rendered from the catalog. A file is written only when its text differs and its check
//! accepts the new text. If the command that follows fails, the old file is restored, and the new text
//! is tried again later.

mod lines;
mod render;
mod state;

pub(crate) use self::state::{TemplateFault, TemplateState};

use self::render::{Rendered, parse, render};
use crate::catalog::{CatalogSnapshot, Reader};
use crate::environment::CommandEnvironment;
use crate::files::{Directory, read_trusted};
use crate::handles::Handles;
use crate::metrics::{Metrics, RenderResult};
use crate::reconcile::{self, Passes, Reconcile, Wake};
use crate::supervise;
use anyhow::{Context as _, bail};
use catalog::checks::OUTPUT_MAX_BYTES;
use etcd_session::jitter;
use schema::time::Backoff;
use settings::{Settings, TemplateSettings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// Longest template and longest file, in bytes.
const SOURCE_MAX_BYTES: u64 = 1024 * 1024;
const TARGET_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Time between two renderings when the catalog does not change, because the template may.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Bounds of the time until a text that was refused is tried again. Each try may disturb what reads the file.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// The states of all templates, by target.
pub(crate) type TemplateStates = BTreeMap<PathBuf, TemplateState>;

/// The task that runs a renderer for each template of the settings.
pub(crate) struct Templates {
    settings: watch::Receiver<Arc<Settings>>,
    reader: Reader,
    states: watch::Sender<Arc<TemplateStates>>,
    environment: CommandEnvironment,
    metrics: Metrics,
    /// The templates that are rendered; `None` at the start.
    rendered: Option<Vec<TemplateSettings>>,
    renderers: JoinSet<()>,
}

/// What wakes the task.
#[derive(Debug)]
pub(crate) enum TemplatesEvent {
    Settings,
    /// A renderer has ended by a fault.
    Ended(JoinError),
}

impl Templates {
    pub(crate) fn new(handles: &Handles, reader: Reader) -> (Self, watch::Receiver<Arc<TemplateStates>>) {
        let (states, receiver) = watch::channel(Arc::default());
        let templates = Self {
            settings: handles.settings.settings.clone(),
            reader,
            states,
            environment: handles.environment.clone(),
            metrics: handles.metrics.clone(),
            rendered: None,
            renderers: JoinSet::new(),
        };
        (templates, receiver)
    }
}

impl Reconcile for Templates {
    type Event = TemplatesEvent;

    async fn next_event(&mut self) -> Option<TemplatesEvent> {
        tokio::select! {
            changed = self.settings.changed() => changed.ok().map(|()| TemplatesEvent::Settings),
            Some(ended) = self.renderers.join_next() => match ended {
                // The catalog is not followed any more.
                Ok(()) => None,
                Err(error) => Some(TemplatesEvent::Ended(error)),
            },
        }
    }

    fn reason(event: &TemplatesEvent) -> &'static str {
        match event {
            TemplatesEvent::Settings => "settings",
            TemplatesEvent::Ended(_) => "fault",
        }
    }

    async fn pass(&mut self, wake: Wake<TemplatesEvent>) -> Option<Instant> {
        if let Wake::Event(TemplatesEvent::Ended(error)) = wake {
            std::panic::resume_unwind(error.into_panic());
        }
        let templates = self.settings.borrow_and_update().templates.clone();
        if self.rendered.as_ref() != Some(&templates) {
            // The old renderers end before their states are forgotten.
            self.renderers.shutdown().await;
            self.states.send_replace(Arc::default());
            for template in templates.clone() {
                let renderer = Renderer {
                    template,
                    reader: self.reader.clone(),
                    changes: self.reader.changes(),
                    states: self.states.clone(),
                    environment: self.environment.clone(),
                    metrics: self.metrics.clone(),
                    refused: None,
                };
                self.renderers
                    .spawn(supervise::child("renderer", reconcile::run(renderer, Passes::default())));
            }
            self.rendered = Some(templates);
        }
        None
    }
}

/// The task that renders one template.
struct Renderer {
    template: TemplateSettings,
    reader: Reader,
    changes: watch::Receiver<Arc<CatalogSnapshot>>,
    states: watch::Sender<Arc<TemplateStates>>,
    environment: CommandEnvironment,
    metrics: Metrics,
    /// The last text if it was refused.
    refused: Option<RefusedText>,
}

/// A text that its check or its command refused. It is tried again, because the reason may have been
/// somewhere else, such as a service that did not run.
struct RefusedText {
    text: String,
    fault: TemplateFault,
    /// How often it was refused in a row.
    failures: u32,
    retry_at: Instant,
}

impl RefusedText {
    fn new(text: String, fault: TemplateFault, before: Option<Self>) -> Self {
        let failures = 1 + before.filter(|before| before.text == text).map_or(0, |before| before.failures);
        let delay = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1).delay(failures, jitter());
        Self { text, fault, failures, retry_at: Instant::now() + delay }
    }
}

impl Reconcile for Renderer {
    /// The catalog has changed.
    type Event = ();

    async fn next_event(&mut self) -> Option<()> {
        self.changes.changed().await.ok()
    }

    fn reason((): &()) -> &'static str {
        "catalog"
    }

    fn debounce(&self, (): &()) -> Duration {
        self.template.debounce
    }

    async fn pass(&mut self, _: Wake<()>) -> Option<Instant> {
        let shown = self.changes.borrow_and_update().clone();
        let mut refused = self.refused.take();
        let (result, problem, fault) = match self.bring_up_to_date(&shown, &mut refused).await {
            Ok(Progress::Done(result)) => (result, None, None),
            Ok(Progress::Waits(what)) => (RenderResult::Failed, Some(what), None),
            Err(error) => {
                let fault = TemplateFault::from(error);
                (RenderResult::Failed, Some(fault.to_string()), Some(fault))
            }
        };
        self.refused = refused;
        self.metrics.note_render(result);
        self.publish_state(TemplateState { up_to_date: problem.is_none(), problem, fault });
        Some(Instant::now() + POLL_INTERVAL)
    }
}

/// What became of a pass.
enum Progress {
    Done(RenderResult),
    /// The template waits for this.
    Waits(String),
}

impl Renderer {
    fn publish_state(&self, state: TemplateState) {
        let target = &self.template.target;
        self.states.send_if_modified(|states| {
            let before = states.get(target);
            if before == Some(&state) {
                return false;
            }
            // Another output of the same command is no news.
            let is_news = before.is_none_or(|before| !before.is_same_as(&state));
            if let Some(why) = state.problem.as_ref()
                && is_news
            {
                tracing::warn!(file = %target.display(), why, "a template is not up to date");
            }
            Arc::make_mut(states).insert(target.clone(), state);
            is_news
        });
    }

    async fn bring_up_to_date(
        &self,
        shown: &Arc<CatalogSnapshot>,
        refused: &mut Option<RefusedText>,
    ) -> anyhow::Result<Progress> {
        // The settings name the file to write, its template, and the commands to run.
        if let Some(why) = self.environment.untrusted() {
            return Ok(Progress::Waits(format!("the settings are not trusted: {why}")));
        }
        let template = &self.template;
        let (directory, name) = split(&template.target)?;
        let source = read_source(&template.source)?;
        let (shown, reader) = (shown.clone(), self.reader.clone());
        let rendering = tokio::task::spawn_blocking(move || render(&source, &shown, &reader));
        let text = match rendering.await?? {
            Rendered::Text(text) => text,
            Rendered::NotKnown(what) => return Ok(Progress::Waits(format!("{what} is not known yet"))),
        };
        let old = directory.read(&name, TARGET_MAX_BYTES)?;
        if let Some(before) = &*refused
            && before.text == text
            && Instant::now() < before.retry_at
        {
            return Err(before.fault.clone().into());
        }
        let done = if old.as_deref() == Some(text.as_bytes()) {
            self.finish(&directory, &name).await.map(|()| RenderResult::Unchanged)
        } else {
            self.swap(&directory, &name, old.as_deref(), &text).await.map(|()| RenderResult::Written)
        };
        match done {
            Ok(result) => {
                *refused = None;
                Ok(Progress::Done(result))
            }
            Err(error) => {
                let fault = TemplateFault::from(error);
                *refused = Some(RefusedText::new(text, fault.clone(), refused.take()));
                Err(fault.into())
            }
        }
    }

    /// Runs the command of a file that was written before the agent ended, if the command did not
    /// complete then.
    async fn finish(&self, directory: &Directory, name: &str) -> anyhow::Result<()> {
        let (Some(on_change), marker) = (&self.template.on_change, marker(name)) else { return Ok(()) };
        if directory.read(&marker, 1)?.is_none() {
            return Ok(());
        }
        let done = self.command(on_change, &self.template.target).await;
        done.map_err(|fault| fault.in_part("on_change failed"))?;
        Ok(directory.remove(&marker)?)
    }

    async fn swap(
        &self,
        directory: &Directory,
        name: &str,
        old: Option<&[u8]>,
        text: &str,
    ) -> anyhow::Result<()> {
        let template = &self.template;
        if let Some(check) = &template.check {
            let candidate = format!(".{name}.candidate");
            directory.replace(&candidate, text.as_bytes(), template.mode)?;
            let path = directory.path().join(&candidate);
            let checked = self.command(check, &path).await;
            directory.remove(&candidate)?;
            checked.map_err(|fault| fault.in_part("its check refuses the new text"))?;
        }
        if template.on_change.is_some() {
            // If the agent ends before the command completes, the next agent knows that the command
            // is due.
            directory.replace(&marker(name), b"", 0o600)?;
        }
        directory.replace(name, text.as_bytes(), template.mode)?;
        tracing::info!(file = %template.target.display(), "a file was updated from the catalog");
        let Some(on_change) = &template.on_change else { return Ok(()) };
        let Err(fault) = self.command(on_change, &template.target).await else {
            return Ok(directory.remove(&marker(name))?);
        };
        match old {
            Some(old) => directory.replace(name, old, template.mode)?,
            None => directory.remove(name)?,
        }
        // The program that loaded the new file must load the old one again.
        let again = self.command(on_change, &template.target).await;
        directory.remove(&marker(name))?;
        let part = match again {
            Ok(()) => "on_change failed, the old file is back",
            Err(_) => "on_change failed, the old file is back, and on_change failed with it too",
        };
        Err(fault.in_part(part).into())
    }

    async fn command(&self, command: &[String], file: &Path) -> Result<(), TemplateFault> {
        let shown = file.display().to_string();
        let arguments: Vec<String> = command.iter().map(|a| a.replace("{file}", &shown)).collect();
        let environment = self.environment.with([("ORCHESTRATE_FILE", shown)]).await;
        let outcome =
            commands::run(&arguments, &environment, b"", self.template.timeout, OUTPUT_MAX_BYTES).await;
        if outcome.left_processes {
            tracing::warn!(
                file = %file.display(),
                program = arguments.first(),
                "the command left processes in its process group, which were ended; a daemon needs a session of its own"
            );
        }
        if outcome.succeeded() {
            return Ok(());
        }
        Err(TemplateFault { what: outcome.end.to_string(), output: outcome.output.trim().to_owned() })
    }
}

/// Returns the name of the marker beside a file whose command has not completed.
fn marker(name: &str) -> String {
    format!(".{name}.pending")
}

fn split(path: &Path) -> anyhow::Result<(Directory, String)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        bail!("{}: not the name of a file", path.display());
    };
    Ok((Directory::open(directory)?, name.to_owned()))
}

/// Checks that a template can be read, as far as its text says.
///
/// # Errors
/// Returns what is wrong with it, and the line.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    parse(&read_source(path)?).with_context(|| path.display().to_string())
}

fn read_source(path: &Path) -> anyhow::Result<String> {
    // Whoever can write the template decides what readers of the file get.
    read_trusted(path, SOURCE_MAX_BYTES)
}
