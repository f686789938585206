//! Incidents: what people have to be told about a fleet, and when. Every observer of a fleet finds the same incidents with
//! the same ids.

mod book;
mod incident;
mod situation;
#[cfg(test)]
mod tests;

pub use book::{IncidentBook, IncidentTimes, Notice, NoticeKind, OpenIncident};
pub use incident::{Incident, IncidentId, IncidentKind, Severity};
pub use situation::Situation;
