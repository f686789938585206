//! What the HTTP servers of the agent and of the observer share: limits on connections, times and sizes, because any
//! program of the machine may send requests; the check of the name by which a client asks; answers that are rendered
//! once for all clients; the formats of metrics.

mod answers;
mod metrics_encoder;
mod metrics_format;
mod own_names;
mod refusal;
mod server;

pub use answers::{AnswerCache, json_body};
pub use metrics_encoder::MetricsEncoder;
pub use metrics_format::MetricsFormat;
pub use own_names::{OwnNames, require_own_name};
pub use refusal::ErrorResponse;
pub use server::{Connection, Limits, Source, TooManyWait, Waiting, serve};
