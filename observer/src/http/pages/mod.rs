//! The pages for people. They show what the API has, as HTML that needs no script; a script keeps them fresh.

mod assets;
mod chart;
mod clean_html;
mod events;
mod frame;
mod groups;
mod host;
mod hosts;
mod icons;
mod links;
mod now;
mod offered;
mod rollouts;
mod search;
mod services;
mod sign_in;
mod table;

pub(super) use assets::is_public;
pub(crate) use clean_html::CleanHtml;
pub(super) use sign_in::{address_of, from_other_site, own_address, sign_in, wants_page};

use super::fleet::host_changes;
use super::parameters::{EventsParameters, HostsParameters, Parameters, read_none, read_one, refused};
use super::shared::{AppState, ViewInput};
use askama::Template;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use events::EventsPage;
use frame::View;
use groups::Grouping;
use host::HostPage;
use hosts::HostsPage;
use http_server::ErrorResponse;
use now::NowPage;
use rollouts::RolloutsPage;
use schema::names::{HostName, ServiceName};
use search::SearchPage;
use services::{ServicePage, ServicesPage};

/// Every page and file, and its handler.
pub(super) fn routes() -> [(&'static str, MethodRouter<AppState>); 11] {
    [
        ("/", get(now_page)),
        ("/events", get(events_page)),
        ("/hosts", get(hosts_page)),
        ("/hosts/{host}", get(host_page)),
        ("/icon.svg", get(assets::icon)),
        ("/page.css", get(assets::style)),
        ("/page.js", get(assets::script)),
        ("/rollouts", get(rollouts_page)),
        ("/search", get(search_page)),
        ("/services", get(services_page)),
        ("/services/{service}", get(service_page)),
    ]
}

/// Shows a page whose parameters were understood, or says what is wrong with them.
async fn show<P: Send + 'static, T: Template>(
    shared: &AppState,
    view: View<'_>,
    question: String,
    parameters: Result<P, ErrorResponse>,
    content: impl FnOnce(&ViewInput<'_>, P) -> Result<T, String> + Send + 'static,
) -> Response {
    let content = match parameters {
        Err(refusal) => Err(refusal),
        Ok(parameters) => {
            let render = |seen: ViewInput<'_>| {
                let page = content(&seen, parameters)?;
                page.render().map(String::into_bytes).map_err(|error| error.to_string())
            };
            shared.rendered(format!("page {question}"), render).await
        }
    };
    frame::page(shared, view, content)
}

/// Returns the page that says why a moment of the past cannot be shown. The choices are moments with their addresses.
pub(super) fn refusal(shared: AppState, refusal: ErrorResponse, choices: Vec<(String, String)>) -> Response {
    frame::message(&shared, View::new("", "The past"), &refusal, &choices)
}

async fn now_page(shared: AppState, Query(parameters): Query<Parameters>) -> Response {
    let wanted = Grouping::read(&parameters);
    let (alarms, doubt) = shared.fleet.alarms_and_doubt();
    let incidents = shared.fleet.incidents().map(|found| found.open).unwrap_or_default();
    // Incidents open and close without the store.
    let open: Vec<_> = incidents.iter().map(|found| (&found.incident.incident_id, found.flapping)).collect();
    let question = format!("now {parameters:?} {open:?} {alarms:?} {doubt:?}");
    show(&shared, View::new("/", "Now"), question, wanted, move |seen, wanted| {
        Ok(NowPage::new(seen, alarms, doubt, &incidents, &wanted))
    })
    .await
}

async fn rollouts_page(shared: AppState, Query(parameters): Query<Parameters>) -> Response {
    let none = read_none(&parameters);
    let view = View::new("/rollouts", "Rollouts");
    show(&shared, view, "rollouts".into(), none, |seen, ()| Ok(RolloutsPage::new(seen))).await
}

async fn services_page(shared: AppState, Query(parameters): Query<Parameters>) -> Response {
    let none = read_none(&parameters);
    let view = View::new("/services", "Services");
    show(&shared, view, "services".into(), none, |seen, ()| Ok(ServicesPage::new(seen))).await
}

async fn service_page(shared: AppState, Path(name): Path<String>) -> Response {
    let service = ServiceName::new(name.as_str()).map_err(refused);
    let question = format!("service {name}");
    let content = |seen: &ViewInput<'_>, service| ServicePage::new(seen, &service);
    show(&shared, View::new("/services", &name), question, service, content).await
}

async fn events_page(shared: AppState, Query(parameters): Query<Parameters>) -> Response {
    let wanted = EventsParameters::read(&without_empty(parameters));
    let question = format!("events {wanted:?}");
    let wanted = match wanted {
        Ok(wanted) => host_changes(&shared, &wanted).await.map(|changes| (wanted, changes)),
        Err(refusal) => Err(refusal),
    };
    let content = |seen: &ViewInput<'_>, (wanted, changes)| Ok(EventsPage::new(seen, &wanted, changes));
    show(&shared, View::new("/events", "Events"), question, wanted, content).await
}

async fn hosts_page(shared: AppState, Query(parameters): Query<Parameters>) -> Response {
    let (causes, parameters): (Parameters, Parameters) =
        without_empty(parameters).into_iter().partition(|(name, _)| name == "cause");
    let wanted = HostsParameters::read(&parameters);
    let question = format!("hosts {parameters:?} {causes:?}");
    let content = move |seen: &ViewInput<'_>, wanted| {
        let cause = causes.last().map(|(_, cause)| cause.as_str());
        Ok(HostsPage::new(seen, &wanted, &parameters, cause))
    };
    show(&shared, View::new("", "Hosts"), question, wanted, content).await
}

async fn host_page(shared: AppState, Path(name): Path<String>) -> Response {
    let host = HostName::folded(&name).map_err(refused);
    let question = format!("host {name}");
    let content = |seen: &ViewInput<'_>, host| HostPage::new(seen, &host);
    show(&shared, View::new("", &name), question, host, content).await
}

/// Leads to the host or service with the name that was searched, or shows those that have it in their name.
async fn search_page(shared: AppState, Query(parameters): Query<Parameters>) -> Response {
    let text = read_one(&parameters, "q").map(|text| text.unwrap_or_default().trim().to_owned());
    let query = text.as_ref().map(Clone::clone).unwrap_or_default();
    let (fleet, wanted) = (shared.fleet.clone(), query.clone());
    // Another page may be made under the lock.
    let exact = tokio::task::spawn_blocking(move || search::exact(fleet.read().as_ref()?, &wanted)).await;
    if let Ok(Some(to)) = exact {
        let at = shared.past.as_ref().map(|wanted| format!("?{}", wanted.parameter()));
        return Redirect::to(&(to + &at.unwrap_or_default())).into_response();
    }
    let view = View { path: "", title: "Search", query: &query };
    show(&shared, view, format!("search {query}"), text, |seen, text| Ok(SearchPage::new(seen, &text))).await
}

/// Leaves out the fields of a form that nobody filled in.
fn without_empty(mut parameters: Parameters) -> Parameters {
    parameters.retain(|(name, value)| !value.is_empty() || name == "all");
    parameters
}
