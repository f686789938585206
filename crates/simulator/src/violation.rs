//! What a law finds.

/// A law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub law: &'static str,
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.law, self.what)
    }
}

pub(crate) fn broken<T>(law: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { law, what: what.into() })
}
