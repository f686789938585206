//! Supervision of the agent's tasks. Every task runs until the agent stops. If one ends before that,
//! its work is not done any more, and nothing else may show it: an agent without the task that
//! follows the catalog still answers, but with old data. So the process ends, with an exit code of
//! its own, and the service manager starts it again. The journal and the leases make that cheap.

use crate::failpoint;
use crate::reconcile::{self, LastPass, Passes, Reconcile};
use planning::calendar::rfc3339;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

/// The error if a task has ended before the agent stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the task {task} has ended{}", .panic.as_ref().map(|text| format!(": it panicked: {text}")).unwrap_or_default())]
pub struct TaskEnded {
    task: &'static str,
    /// Message of the panic, if the task panicked.
    panic: Option<String>,
}

impl TaskEnded {
    /// Returns the error for a task whose channel is closed.
    pub(crate) fn of(task: &'static str) -> Self {
        Self { task, panic: None }
    }
}

/// A task of the agent, as `/status` shows it.
#[derive(Debug, Clone)]
pub(crate) struct TaskStatus {
    pub name: &'static str,
    /// The last pass; `None` for a task that has no passes.
    pub last_pass: Option<watch::Receiver<Option<LastPass>>>,
}

impl TaskStatus {
    pub(crate) fn json(&self) -> Value {
        let last = self.last_pass.as_ref().and_then(|last| *last.borrow());
        json!({
            "name": self.name,
            "passes": last.map(|last| last.count),
            "last_pass": last.map(|last| rfc3339(last.at)),
            "last_reason": last.map(|last| last.reason),
        })
    }
}

/// The supervised tasks. They end when this is dropped.
pub(crate) struct Tasks {
    set: JoinSet<()>,
    handles: Vec<(&'static str, AbortHandle)>,
    /// All tasks, in the order of their start.
    list: watch::Sender<Vec<TaskStatus>>,
    /// Each task sends its name here when it ends.
    ends: mpsc::UnboundedSender<&'static str>,
    ended: mpsc::UnboundedReceiver<&'static str>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        let (ends, ended) = mpsc::unbounded_channel();
        Self { set: JoinSet::new(), handles: Vec::new(), list: watch::Sender::default(), ends, ended }
    }

    /// Returns the list of all tasks, which grows until the agent has started.
    pub(crate) fn list(&self) -> watch::Receiver<Vec<TaskStatus>> {
        self.list.subscribe()
    }

    /// Starts a task that has no passes.
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.list.send_modify(|list| list.push(TaskStatus { name, last_pass: None }));
        self.start(name, task);
    }

    pub(crate) fn spawn_loop(&mut self, name: &'static str, task: impl Reconcile + 'static) {
        let passes = self.list_loop(name);
        self.start(name, reconcile::run(task, passes));
    }

    /// Lists a loop. Returns where it notes its passes.
    pub(crate) fn list_loop(&self, name: &'static str) -> Passes {
        let passes = Passes::default();
        let last_pass = Some(passes.subscribe());
        self.list.send_modify(|list| list.push(TaskStatus { name, last_pass }));
        passes
    }

    fn start(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let ends = self.ends.clone();
        let handle = self.set.spawn(async move {
            let mut task = std::pin::pin!(task);
            // Dropped before the task, also by a panic. So its end is known before the channels of
            // the task are closed, which ends other tasks.
            let _end = End { name, ends };
            tokio::select! {
                // A test can end the task at this point.
                () = failpoint::task_fault(name) => {}
                () = task.as_mut() => {}
            }
        });
        self.handles.push((name, handle));
    }

    /// Waits until a task ends, and returns the first one.
    pub(crate) async fn first_end(&mut self) -> TaskEnded {
        let Some(task) = self.ended.recv().await else { return std::future::pending().await };
        let first = self.handles.iter().find(|(name, _)| *name == task).map(|(_, handle)| handle.id());
        while let Some(joined) = self.set.join_next_with_id().await {
            match joined {
                Ok((id, ())) if Some(id) == first => break,
                Err(error) if Some(error.id()) == first => {
                    return TaskEnded { task, panic: Some(message_of(error)) };
                }
                _ => {}
            }
        }
        TaskEnded::of(task)
    }

    /// Ends all tasks but those named, which have this time to end by themselves.
    pub(crate) async fn stop(mut self, with_time: &[&str], limit: Duration) {
        for (_, handle) in self.handles.iter().filter(|(name, _)| !with_time.contains(name)) {
            handle.abort();
        }
        let all = async { while self.set.join_next().await.is_some() {} };
        // Those that are left end when the set is dropped.
        let _ = tokio::time::timeout(limit, all).await;
    }
}

/// Runs the work of a task that a supervised task has started. The supervised task must end with its
/// panic. A test can make it panic at this point.
pub(crate) async fn child<T>(name: &str, work: impl Future<Output = T>) -> T {
    tokio::select! {
        () = failpoint::task_fault(name) => panic!("{name}: a child that works in a loop does not return"),
        done = work => done,
    }
}

/// Sends the name of a task when it is dropped.
struct End {
    name: &'static str,
    ends: mpsc::UnboundedSender<&'static str>,
}

impl Drop for End {
    fn drop(&mut self) {
        // An error means that the agent stops already.
        let _ = self.ends.send(self.name);
    }
}

/// Returns the message of a panic. Supervised tasks are aborted only when nobody waits for their end.
fn message_of(error: JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a task that ends in this way beside one that does not end.
    async fn check(task: impl Future<Output = ()> + Send + 'static, expected: &str) {
        let mut tasks = Tasks::new();
        tasks.spawn("other", std::future::pending());
        tasks.spawn("faulty", task);
        assert_eq!(tasks.first_end().await.to_string(), expected);
    }

    #[tokio::test]
    async fn a_task_that_ends_is_named() {
        check(async {}, "the task faulty has ended").await;
        check(async { panic!("no {}", "luck") }, "the task faulty has ended: it panicked: no luck").await;
    }
}
