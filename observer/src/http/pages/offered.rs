//! Commands that a page offers, each with what it does: nobody has to know that at three in the morning.

use planning::rollout::RolloutWord;

/// A command, and what it does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) command: String,
    pub(super) what: &'static str,
}

impl Offered {
    pub(super) fn new(command: impl Into<String>, what: &'static str) -> Self {
        Self { command: command.into(), what }
    }
}

/// Returns what is offered about a rollout in a state. What leads away from a bad version comes first.
pub(super) fn about_rollout(state: RolloutWord, version: &str) -> Vec<Offered> {
    match state {
        RolloutWord::Ended => {
            vec![Offered::new("orchestrate rollout status", "shows what became of it")]
        }
        RolloutWord::Refused => vec![Offered::new("orchestrate policy show", "shows what it does not fit")],
        RolloutWord::Halted => vec![
            Offered::new(
                "orchestrate rollout rollback --reason REASON",
                "goes back to the last version that worked",
            ),
            Offered::new(
                "orchestrate rollout resume",
                "goes on with this version: the hosts that failed do not count any more",
            ),
        ],
        RolloutWord::Frozen => vec![
            Offered::new("orchestrate freezes", "shows who froze what, and why"),
            Offered::new("orchestrate rollout resume", "ends a pause; freezes end with `unfreeze`"),
        ],
        RolloutWord::GoesOn => vec![
            Offered::new("orchestrate rollout status --watch", "follows it"),
            Offered::new(format!("orchestrate plan {version}"), "shows what is expected of it"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_offered_before_what_pushes_a_bad_version_on() {
        let offered = about_rollout(RolloutWord::Halted, "v2");
        let words: Vec<&str> = offered.iter().map(|offered| offered.command.as_str()).collect();
        assert_eq!(words, ["orchestrate rollout rollback --reason REASON", "orchestrate rollout resume"]);
        assert!(offered[1].what.starts_with("goes on with this version"), "{offered:?}");
    }
}
