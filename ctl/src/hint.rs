//! What the user may look at after an error of the store: the settings that say where it is and who asks.

use crate::endpoints::default_endpoint;
use crate::exit::Failure;
use crate::settings::Settings;
use etcd_session::{EndpointSource, StoreError};

/// Port on which agents serve HTTP, unless their settings say otherwise.
const AGENT_PORT: &str = "8580";

fn asks_an_agent(endpoints: &EndpointSource) -> bool {
    let has_port = |endpoint: &String| endpoint.trim_end_matches('/').ends_with(&format!(":{AGENT_PORT}"));
    matches!(endpoints, EndpointSource::List(list) if list.iter().any(has_port))
}

/// Adds a hint to a failure, if its error is about the settings of the store.
pub(crate) fn add(mut failure: Failure, settings: &Settings) -> Failure {
    const PLACE: &str = "--endpoints or ORCHESTRATE_ENDPOINTS say where the store is";
    failure.hint = match failure.error.downcast_ref::<StoreError>() {
        Some(StoreError::Tls { .. }) => Some("--cacert, --cert and --key name the files for TLS".to_owned()),
        Some(StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }) => {
            Some("--user, or --cert and --key, say who asks".to_owned())
        }
        Some(error) if error.is_about_connecting() && asks_an_agent(&settings.session.endpoints) => {
            Some(format!("{AGENT_PORT} is the HTTP port of agents; a store listens on 2379 as a rule"))
        }
        Some(error) if error.is_about_connecting() && settings.store_host_given => Some(
            "--host names the store; name a host of the fleet as an argument, or with --hostname".to_owned(),
        ),
        Some(error) if error.is_about_connecting() && settings.endpoints_given => Some(PLACE.to_owned()),
        Some(error) if error.is_about_connecting() => {
            Some(format!("no endpoint is given, so {} was asked; {PLACE}", default_endpoint()))
        }
        _ => None,
    };
    failure
}
