//! Why something cannot be done with an object.

use rustix::io::Errno;
use std::fmt;
use std::io;

/// What was to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// To open a store.
    Open,
    /// To create an object.
    Create,
    /// To look whether an object is there.
    Exists,
    /// To read an object.
    Get,
    /// To list the objects.
    List,
    /// To store an object in the place of another one.
    Replace,
    /// To remove an object.
    Remove,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "use",
            Self::Create => "create",
            Self::Exists => "look for",
            Self::Get => "get",
            Self::List => "list the objects of",
            Self::Replace => "replace",
            Self::Remove => "remove",
        })
    }
}

/// Why something cannot be done with an object or its store. Neither `Display` nor `Debug` shows a secret or a signature: the
/// URL is the one of [`ObjectsUrl::join`](super::ObjectsUrl::join), not the one of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {url}: {problem}")]
pub struct ObjectError {
    operation: Operation,
    url: String,
    problem: ObjectProblem,
}

impl ObjectError {
    pub(super) fn new(operation: Operation, url: String, problem: ObjectProblem) -> Self {
        Self { operation, url, problem }
    }

    /// Returns what was to be done.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the URL of the object, or of the store that was to be opened.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn problem(&self) -> &ObjectProblem {
        &self.problem
    }

    /// Returns the HTTP status of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        match &self.problem {
            ObjectProblem::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the code of the answer, as in the table "List of error codes" of the Amazon S3 API Reference.
    pub fn code(&self) -> Option<&str> {
        match &self.problem {
            ObjectProblem::Answer { code, .. } => code.as_deref(),
            _ => None,
        }
    }

    /// True if the same call fails until somebody changes a setting, a permission or the object. Else it is worth trying
    /// again later.
    pub fn is_permanent(&self) -> bool {
        match &self.problem {
            ObjectProblem::Settings(_) | ObjectProblem::Untrusted(_) | ObjectProblem::TooLarge { .. } => true,
            ObjectProblem::Timeout(_) | ObjectProblem::Connection(_) => false,
            ObjectProblem::File { is_permanent, .. } => *is_permanent,
            ObjectProblem::Answer { status, code } => is_permanent_answer(*status, code.as_deref()),
        }
    }
}

/// The reason of an [`ObjectError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectProblem {
    /// A setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The server answered otherwise than with what was wanted.
    #[error("the server answered {status}{}", code.as_deref().map(|code| format!(" {code}")).unwrap_or_default())]
    Answer {
        status: u16,
        /// The code in the body, if there is one. The answer to a HEAD request has no body.
        code: Option<String>,
    },
    /// A time limit passed.
    #[error("it took too long: {0}")]
    Timeout(String),
    /// The server cannot be reached, or the connection broke.
    #[error("{0}")]
    Connection(String),
    /// The certificate of the server is not valid for it.
    #[error("the server is not trusted: {0}")]
    Untrusted(String),
    /// A file or a directory cannot be used.
    #[error("{why}")]
    File {
        /// What cannot be used, and why.
        why: String,
        /// Whether somebody has to change something first.
        is_permanent: bool,
    },
    /// The object is larger than allowed.
    #[error("it has more than {max} bytes")]
    TooLarge {
        /// The largest length that is allowed, in bytes.
        max: u64,
    },
}

impl ObjectProblem {
    /// Returns the problem of a file that cannot be used.
    pub(super) fn of_file(what: &str, error: &io::Error) -> Self {
        Self::File { why: format!("{what}: {error}"), is_permanent: is_permanent_io(error) }
    }
}

/// True if a file system gives this error until somebody changes something. A full disk, a broken one and a server that
/// is away are repaired without a change of the fleet.
fn is_permanent_io(error: &io::Error) -> bool {
    let permanent = [
        Errno::ACCESS,
        Errno::INVAL,
        Errno::ISDIR,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::OPNOTSUPP,
        Errno::PERM,
        Errno::ROFS,
    ];
    Errno::from_io_error(error).is_some_and(|errno| permanent.contains(&errno))
}

/// True if a server gives this answer until somebody changes something. 409 is the conflict with another request, and
/// `RequestTimeout` has status 400. A server that does not know a header answers 501.
fn is_permanent_answer(status: u16, code: Option<&str>) -> bool {
    match (status, code) {
        (400, Some("RequestTimeout")) | (307 | 408 | 409 | 425 | 429, _) => false,
        (501 | 505, _) => true,
        (500.., _) => false,
        _ => true,
    }
}

/// Returns the code in the XML of an error, by "REST error responses" of the Amazon S3 API Reference. The rest of the XML is
/// not used: it may hold what was signed.
pub(super) fn code_in(xml: &str) -> Option<String> {
    let (_, rest) = xml.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let code = code.trim();
    let is_code =
        (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    is_code.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(problem: ObjectProblem) -> ObjectError {
        ObjectError::new(Operation::Create, "s3://bundles/a".to_owned(), problem)
    }

    #[test]
    fn the_code_is_found_in_the_xml() {
        let check = |xml: &str, code: Option<&str>| assert_eq!(code_in(xml).as_deref(), code, "{xml}");
        let xml = "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code><Message>x</Message></Error>";
        check(xml, Some("NoSuchKey"));
        check("<Error>\n  <Code> AccessDenied </Code>", Some("AccessDenied"));
        check("<Error><Code></Code></Error>", None);
        check("<Error><Code>NoSuch", None);
        check("<Error><Code><b>x</b></Code></Error>", None);
        check("<Error><Code>a secret</Code></Error>", None);
        check(&format!("<Code>{}</Code>", "x".repeat(65)), None);
        check("<html>not found</html>", None);
        check("", None);
    }

    #[test]
    fn an_answer_that_may_differ_later_is_not_permanent() {
        let check = |status: u16, code: Option<&str>, permanent: bool| {
            let problem = ObjectProblem::Answer { status, code: code.map(str::to_owned) };
            assert_eq!(error(problem).is_permanent(), permanent, "{status} {code:?}");
        };
        check(301, Some("PermanentRedirect"), true);
        check(307, Some("TemporaryRedirect"), false);
        check(400, Some("InvalidRequest"), true);
        check(400, Some("RequestTimeout"), false);
        check(403, Some("SignatureDoesNotMatch"), true);
        check(403, None, true);
        check(404, Some("NoSuchBucket"), true);
        check(404, None, true);
        check(408, None, false);
        check(409, Some("ConditionalRequestConflict"), false);
        check(429, None, false);
        check(500, Some("InternalError"), false);
        check(501, Some("NotImplemented"), true);
        check(503, Some("SlowDown"), false);
        check(507, None, false);
    }

    #[test]
    fn a_problem_that_passes_is_not_permanent() {
        let check = |problem: ObjectProblem, permanent: bool, shown: &str| {
            let error = error(problem);
            assert_eq!(error.is_permanent(), permanent, "{error}");
            assert_eq!(error.to_string(), format!("cannot create s3://bundles/a: {shown}"));
        };
        let file = |errno: Errno| ObjectProblem::of_file("d", &io::Error::from(errno));
        check(ObjectProblem::Settings("no".to_owned()), true, "no");
        check(ObjectProblem::Untrusted("no".to_owned()), true, "the server is not trusted: no");
        check(ObjectProblem::TooLarge { max: 5 }, true, "it has more than 5 bytes");
        check(ObjectProblem::Connection("no".to_owned()), false, "no");
        check(ObjectProblem::Timeout("connect".to_owned()), false, "it took too long: connect");
        check(file(Errno::ACCESS), true, "d: Permission denied (os error 13)");
        check(file(Errno::NOSPC), false, "d: No space left on device (os error 28)");
        check(file(Errno::STALE), false, "d: Stale file handle (os error 116)");
        let answer =
            |code: Option<&str>| ObjectProblem::Answer { status: 403, code: code.map(str::to_owned) };
        check(answer(Some("AccessDenied")), true, "the server answered 403 AccessDenied");
        check(answer(None), true, "the server answered 403");
    }
}
