//! The runs of steps on this host, with their output, from which secrets are removed.

use super::shared::Shared;
use crate::step::list::Run;
use archive::{CUT_LINE, Cut};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use http_server::{ErrorResponse, json_body};
use planning::calendar::rfc3339;
use schema::names::Token;
use schema::steps::StepEnd;
use serde::Deserialize;
use serde_json::{Value, json};

/// Which lines of the output are wanted.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    /// The number of the first line, from 0.
    #[serde(default)]
    from: u64,
    /// The output from its start, as far as it is kept, not only its last part.
    #[serde(default)]
    whole: bool,
}

/// Lists the runs that are kept, the newest first.
pub(super) async fn list(State(shared): State<Shared>) -> Result<Response, ErrorResponse> {
    let runs = shared.runs.clone();
    let runs = blocking(move || runs.list()).await?;
    let runs: Vec<Value> = runs.iter().map(|run| about(run, &shared)).collect();
    Ok(json_body(shared.answers.body(&json!({ "runs": runs })).await?))
}

/// Shows a run and its output from a line on. While the step runs, only whole lines: the rest of a line may
/// show that it holds a secret.
pub(super) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(part): Query<Part>,
) -> Result<Response, ErrorResponse> {
    let none = || ErrorResponse::Rejected(StatusCode::NOT_FOUND, "there is no such run".to_owned());
    let id = Token::new(id).map_err(|_| none())?;
    let runs = shared.runs.clone();
    let secrets = shared.secrets.clone();
    let read = move || {
        let Some(mut run) = runs.read(&id)? else { return Ok(None) };
        let mut text = secrets.redact_cut(&run.output.text, run.output.cut(run.end.is_some()));
        if part.whole
            && let Some((begin, is_cut)) = runs.whole_output(&id)?
        {
            let mut shown = Vec::new();
            let cut =
                Cut { begin: false, end: is_cut || matches!(run.end, None | Some(StepEnd::Interrupted)) };
            secrets.redactor().copy(begin, cut, &mut shown)?;
            let last = if is_cut { format!("{CUT_LINE}{text}") } else { String::new() };
            text = String::from_utf8_lossy(&shown).into_owned() + &last;
            run.output.skipped_lines = 0;
        }
        Ok(Some((run, text)))
    };
    let (run, text) = blocking(read).await?.ok_or_else(none)?;
    let mut answer = about(&run, &shared);
    let is_over = run.end.is_some();
    let whole = if is_over { text.as_str() } else { &text[..text.rfind('\n').map_or(0, |at| at + 1)] };
    let first = part.from.max(run.output.skipped_lines);
    let log: Vec<&str> =
        whole.lines().skip(usize::try_from(first - run.output.skipped_lines).unwrap_or(usize::MAX)).collect();
    answer["first_line"] = first.into();
    answer["log"] = log.into();
    Ok(json_body(shared.answers.body(&answer).await?))
}

fn about(run: &Run, shared: &Shared) -> Value {
    let state = run.end.as_ref().map_or("running", StepEnd::kind);
    json!({
        "run": run.id,
        "phase": run.about.phase,
        "step": run.about.step,
        "version": run.about.version,
        "attempt": run.about.attempt,
        "began_at": rfc3339(run.about.began_at),
        "state": state,
        "end": run.end.as_ref().map(|end| shared.secrets.redact(&end.to_string())),
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ErrorResponse> {
    let failed = |why: String| ErrorResponse::Rejected(StatusCode::INTERNAL_SERVER_ERROR, why);
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}
