//! The text of a template, from the catalog. It touches no file.

use super::lines::keep_newlines_after_text;
use crate::catalog::{CatalogSnapshot, Reader};
use anyhow::anyhow;
use catalog::InstanceView;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use schema::health::Level;
use schema::keys::Key;
use schema::names::{ConfigName, ServiceName, Tag};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of steps of one rendering: enough for lists of 100,000 entries, and a limit for
/// endless loops.
const FUEL: u64 = 50_000_000;

/// The result of a rendering.
pub(super) enum Rendered {
    Text(String),
    /// The catalog, or the health of a service, has not been read yet.
    NotKnown(String),
}

fn serialized(value: impl Serialize) -> Value {
    Value::from(Serde(value))
}

/// Returns the language of templates, without the functions of the catalog.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // A tag alone on its line leaves no empty line behind.
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    // This cannot fail, because the delimiters are those of Jinja.
    environment.set_syntax(syntax.build().unwrap_or_default());
    environment.set_fuel(Some(FUEL));
    environment
}

/// Checks that a template can be read.
///
/// # Errors
/// Returns what is wrong with it, and the line.
pub(super) fn parse(source: &str) -> anyhow::Result<()> {
    let environment = environment();
    environment.template_from_str(&prepare(source)?).map(drop).map_err(with_line)
}

fn prepare(source: &str) -> anyhow::Result<String> {
    keep_newlines_after_text(source).map_err(|(line, why)| anyhow!("line {line}: {why}"))
}

fn with_line(error: Error) -> anyhow::Error {
    match error.line() {
        Some(line) => anyhow!("line {line}: {error}"),
        None => anyhow!("{error}"),
    }
}

/// Renders a template. The agent follows the services and values that it names.
pub(super) fn render(
    source: &str,
    shown: &Arc<CatalogSnapshot>,
    reader: &Reader,
) -> anyhow::Result<Rendered> {
    if !shown.view.records_known() {
        return Ok(Rendered::NotKnown("the catalog".into()));
    }
    let mut environment = environment();
    let unknown: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (view, asking, missing) = (shown.clone(), reader.clone(), unknown.clone());
    environment.add_function("service", move |name: String, options: Kwargs| {
        let wrong = |error: String| Error::new(ErrorKind::InvalidOperation, error);
        let name = ServiceName::new(name).map_err(|e| wrong(e.to_string()))?;
        let level = options.get::<Option<String>>("level")?;
        let level = level.map_or(Ok(Level::Functional), |text| text.parse::<Level>());
        let level = level.map_err(|e| wrong(e.to_string()))?;
        let tag = options.get::<Option<String>>("tag")?.map(Tag::new).transpose();
        let tag = tag.map_err(|e| wrong(e.to_string()))?;
        options.assert_all_used()?;
        asking.follow(&name);
        if level == Level::Functional && !view.view.health_known(&name) {
            let missing = &mut missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.insert(format!("the health of {name}"));
        }
        let service = view.view.service(&name);
        let found = service.into_iter().flat_map(|service| service.at(level, tag.as_ref()));
        let list: Vec<InstanceView<'_>> =
            found.map(|(host, instance)| InstanceView::new(host, instance)).collect();
        Ok(serialized(&list))
    });
    let (known, asking, missing) = (shown.clone(), reader.clone(), unknown.clone());
    environment.add_function("key", move |name: String, options: Kwargs| {
        let wrong = |error: String| Error::new(ErrorKind::InvalidOperation, error);
        let name = ConfigName::new(name).map_err(|e| wrong(e.to_string()))?;
        let default = options.get::<Option<String>>("default")?;
        options.assert_all_used()?;
        asking.follow_config();
        let Some(values) = &known.config else {
            let missing = &mut missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.insert(format!("the value of {}", Key::Config(name)));
            return Ok(String::new());
        };
        match (values.get(&name), default) {
            (Some(Ok(value)), _) => Ok(value.clone()),
            (Some(Err(error)), _) => Err(wrong(format!("the value of {name}: {error}"))),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(wrong(format!("there is no {}", Key::Config(name)))),
        }
    });
    let view = shown.clone();
    environment.add_function("services", move || serialized(view.view.services().keys().collect::<Vec<_>>()));
    let view = shown.clone();
    environment.add_function("hosts", move || {
        let nodes = view.view.nodes();
        let hosts = nodes.hosts().into_iter().map(|host| {
            BTreeMap::from([
                ("host", Value::from(host.as_str())),
                ("addresses", serialized(nodes.addresses(host).collect::<Vec<_>>())),
            ])
        });
        serialized(hosts.collect::<Vec<_>>())
    });
    let text = environment.render_str(&prepare(source)?, ()).map_err(with_line)?;
    let unknown = unknown.lock().unwrap_or_else(PoisonError::into_inner);
    match unknown.first() {
        Some(what) => Ok(Rendered::NotKnown(what.clone())),
        None => Ok(Rendered::Text(text)),
    }
}
