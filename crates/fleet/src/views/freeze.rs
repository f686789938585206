//! A freeze, as commands show it.

use planning::calendar::rfc3339;
use schema::frozen::FrozenBy;
use schema::names::Token;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// A freeze that stands.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "FreezeJson<'_>")]
pub struct FreezeView(pub FrozenBy);

/// The names of [`FreezeView`] in JSON.
#[derive(Serialize, JsonSchema)]
struct FreezeJson<'a> {
    scope: String,
    id: Option<&'a Token>,
    by: Option<&'a str>,
    reason: Option<&'a str>,
    since: Option<String>,
    until: Option<String>,
}

impl Serialize for FreezeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let FrozenBy { scope, token, freeze } = &self.0;
        let freeze = freeze.as_ref();
        let json = FreezeJson {
            scope: scope.path(),
            id: token.as_ref(),
            by: freeze.map(|freeze| freeze.by.as_str()),
            reason: freeze.map(|freeze| freeze.reason.as_str()).filter(|reason| !reason.is_empty()),
            since: freeze.and_then(|freeze| rfc3339(freeze.at)),
            until: freeze.and_then(|freeze| freeze.until).and_then(rfc3339),
        };
        json.serialize(serializer)
    }
}

impl fmt::Display for FreezeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
