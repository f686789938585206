//! The moment of the past that a question names, and where it is recorded.

use crate::exit::Failure;
use crate::options::GlobalOptions;
use anyhow::anyhow;
use archive::objects::{ConfigError, ObjectStore, WrittenConfig};
use archive::recording::{Directory, RecordingPlace};
use schema::time::EpochSeconds;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// How the object stores of recordings and bundles are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct S3Settings {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) cacert: Option<PathBuf>,
}

impl S3Settings {
    /// Reads the options, and for those that are not given the environment.
    pub(crate) fn read(options: &GlobalOptions, get: &impl Fn(&str) -> Option<String>) -> Self {
        let path = |option: &Option<PathBuf>, name| option.clone().or_else(|| get(name).map(PathBuf::from));
        Self {
            endpoint: options.s3_endpoint.clone().or_else(|| get("ORCHESTRATE_S3_ENDPOINT")),
            region: options.s3_region.clone().or_else(|| get("ORCHESTRATE_S3_REGION")),
            credentials: path(&options.s3_credentials, "ORCHESTRATE_S3_CREDENTIALS"),
            cacert: path(&options.s3_cacert, "ORCHESTRATE_S3_CACERT"),
        }
    }

    /// Opens the object store with a URL. It is not contacted.
    pub(crate) fn open(&self, url: &str) -> Result<ObjectStore, ConfigError> {
        let Self { endpoint, region, credentials, cacert } = self;
        let written = WrittenConfig {
            url,
            endpoint: endpoint.as_deref(),
            region: region.as_deref(),
            credentials: credentials.as_deref(),
            ca: cacert.as_deref(),
            timeout: None,
        };
        written.open()
    }
}

/// Where a recording is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedRecording {
    /// The directory or URL, as it was given.
    pub(crate) name: String,
    /// True if an option names it, and false if the environment does.
    pub(crate) by_option: bool,
    s3: S3Settings,
}

impl NamedRecording {
    /// Returns the recording that an option or else the environment names.
    pub(crate) fn read(
        option: Option<&String>,
        environment: Option<String>,
        s3: &S3Settings,
    ) -> Option<Self> {
        let by_option = option.is_some();
        option.cloned().or(environment).map(|name| Self { name, by_option, s3: s3.clone() })
    }

    /// Opens it. An object store is not contacted.
    pub(crate) fn open(&self) -> Result<RecordingPlace, Failure> {
        if !self.name.contains("://") {
            return Ok(RecordingPlace::Directory(Directory::new(&self.name)));
        }
        let opened = self.s3.open(&self.name);
        opened.map(RecordingPlace::Objects).map_err(|error| Failure::usage(anyhow!("--recording: {error}")))
    }

    /// Returns the failure of a recording that cannot be read.
    pub(crate) fn unreadable(&self, why: impl std::fmt::Display) -> Failure {
        Failure::cannot_tell(format!("--recording {}: {why}", self.name))
    }
}

/// Which moment of the past a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PastQuestion {
    /// Where it is recorded.
    pub(crate) recording: NamedRecording,
    /// The moment, as it was given.
    pub(crate) at: String,
    /// When it was asked, from which a duration in `at` counts back.
    pub(crate) asked_at: EpochSeconds,
    /// What counts as the present; `None` for the time of the moment.
    pub(crate) now: Option<EpochSeconds>,
}

impl PastQuestion {
    /// Reads the options; `None` if they are about the present.
    pub(crate) fn read(
        recording: Option<&NamedRecording>,
        at: Option<&String>,
        now: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        let now = now.map(|text| {
            let time = text.parse::<jiff::Timestamp>().map(|time| EpochSeconds(time.as_second()));
            let shown = schema::names::quoted(text);
            time.map_err(|_| {
                Failure::usage(anyhow!("--now is {shown}: it must be a time as 2026-11-27T02:14:00Z"))
            })
        });
        let Some(at) = at else {
            return match now {
                Some(_) => {
                    Err(Failure::usage(anyhow!("--now is for a question about the past; add --at MOMENT")))
                }
                None => Ok(None),
            };
        };
        let Some(recording) = recording else {
            return Err(Failure::usage(anyhow!("--at needs a recording; name it with --recording")));
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let asked_at = EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
        let (recording, at) = (recording.clone(), at.clone());
        Ok(Some(Self { recording, at, asked_at, now: now.transpose()? }))
    }
}
