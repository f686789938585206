//! Checks a recording: whether each segment can be used, whether one is missing, and whether two contradict each other.

use super::at::{At, time_text};
use super::error::RecordingError;
use super::moment::Moment;
use super::name::SegmentName;
use super::past::{Recording, Source, load};
use super::segment::Segment;

/// What was found about a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub segment: SegmentName,
    /// What kind of thing it is.
    pub kind: DiagnosticKind,
    /// What it is, for people.
    pub message: String,
}

/// Kinds of what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticKind {
    /// The segment cannot be read: it is damaged, or a newer program wrote it.
    Unreadable,
    /// The segment continues a segment that is not there.
    Missing,
    /// The segment contradicts another segment.
    Contradiction,
    /// The recorder has not closed it: it writes it, or was stopped.
    NotClosed,
    /// Before it, changes were not recorded.
    Gap,
    /// Values were erased from it.
    Erased,
}

impl DiagnosticKind {
    /// True if something is wrong with the recording. Everything else is said of it, and true.
    pub fn is_fault(self) -> bool {
        matches!(self, Self::Unreadable | Self::Missing | Self::Contradiction)
    }
}

impl Recording {
    /// Reads every segment and returns what is found about them, in their order.
    pub fn check(&self, source: &impl Source) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        for (_, _, names) in self.recorders() {
            let mut before: Option<Segment> = None;
            for name in names {
                let mut add = |kind, message: String| {
                    diagnostics.push(Diagnostic { segment: name.clone(), kind, message });
                };
                match load(name, source) {
                    Ok(Some(segment)) => {
                        about(&segment, before.as_ref(), &mut add);
                        before = Some(segment);
                    }
                    Ok(None) => {
                        add(DiagnosticKind::NotClosed, "it was just begun and says nothing yet".into())
                    }
                    Err(why) => {
                        add(DiagnosticKind::Unreadable, why.to_string());
                        before = None;
                    }
                }
            }
        }
        diagnostics.extend(self.contradictions(source));
        diagnostics
    }

    /// Compares what recorders of one history say, at the beginning of each segment.
    fn contradictions(&self, source: &impl Source) -> Vec<Diagnostic> {
        let mut diagnostics: Vec<Diagnostic> = Vec::new();
        for (branch, recorder, names) in self.recorders() {
            let is_shared = self.recorders().any(|(of, other, _)| of == branch && other != recorder);
            if !is_shared {
                continue;
            }
            for name in names {
                let at = At::Moment(Moment { branch: branch.clone(), revision: name.revision });
                let Err(error @ RecordingError::Contradiction { .. }) = self.at(&at, source) else {
                    continue;
                };
                let (segment, message) = (name.clone(), error.to_string());
                // Both of them have a segment that begins there.
                if diagnostics.iter().all(|found| found.message != message) {
                    diagnostics.push(Diagnostic { segment, kind: DiagnosticKind::Contradiction, message });
                }
            }
        }
        diagnostics
    }
}

/// Finds what a segment says of itself, and how it follows the one before it.
fn about(segment: &Segment, before: Option<&Segment>, add: &mut impl FnMut(DiagnosticKind, String)) {
    let header = &segment.header;
    if let Some(before) = before {
        let (end, begin) = (before.last_revision(), header.revision);
        if header.continues && end != begin {
            let message = format!("it continues revision {begin}, and the segment before it ends with {end}");
            add(DiagnosticKind::Missing, message);
        } else if !header.continues {
            let why = header.gap.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let message = format!("nothing is recorded between the revisions {end} and {begin}{why}");
            add(DiagnosticKind::Gap, message);
        }
    }
    if !segment.closed {
        add(DiagnosticKind::NotClosed, format!("it is not closed; it ends with {}", segment.last_revision()));
    }
    for erased in &header.erased {
        add(DiagnosticKind::Erased, format!("erased at {}: {}", time_text(erased.at), erased.what));
    }
}
