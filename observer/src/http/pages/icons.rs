//! The mark of a verdict: a shape and a word, so that nobody needs to tell colours apart.

use schema::verdict::VerdictKind;

/// The verdicts in the order of the pages: what needs somebody comes first.
pub(super) const ORDER: [VerdictKind; 8] = [
    VerdictKind::Failed,
    VerdictKind::Suspect,
    VerdictKind::Lost,
    VerdictKind::Blocked,
    VerdictKind::Frozen,
    VerdictKind::Waiting,
    VerdictKind::Running,
    VerdictKind::Ok,
];

/// Returns the place of a verdict in the order of the pages.
pub(super) fn place(verdict: VerdictKind) -> usize {
    ORDER.iter().position(|known| *known == verdict).unwrap_or(ORDER.len())
}

/// Returns the shape of a verdict.
pub(super) fn shape(verdict: &VerdictKind) -> &'static str {
    match verdict {
        VerdictKind::Failed | VerdictKind::Suspect => "×",
        VerdictKind::Lost => "○",
        VerdictKind::Blocked => "■",
        VerdictKind::Frozen => "❙❙",
        VerdictKind::Waiting => "◔",
        VerdictKind::Running => "▸",
        VerdictKind::Ok => "·",
    }
}

/// True if somebody has to do something about a host with this verdict.
pub(super) fn needs_somebody(verdict: VerdictKind) -> bool {
    matches!(verdict, VerdictKind::Failed | VerdictKind::Suspect | VerdictKind::Lost | VerdictKind::Blocked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_a_place_and_a_shape_that_needs_no_colour() {
        for verdict in VerdictKind::ALL {
            assert!(place(verdict) < ORDER.len(), "{verdict}");
            let same = VerdictKind::ALL.iter().filter(|other| shape(other) == shape(&verdict));
            let both_failed = matches!(verdict, VerdictKind::Failed | VerdictKind::Suspect);
            assert_eq!(same.count(), if both_failed { 2 } else { 1 }, "{verdict}");
        }
    }
}
