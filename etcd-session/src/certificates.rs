//! When the certificates of a connection end: said 14 days before, and when a connection fails after.

use crate::config::TlsFiles;
use model::time::EpochSeconds;
use model::values::certificate_warning;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_cert::Certificate;

/// When the certificates in these files end, by file: of a client certificate the first in the file counts,
/// of authorities the one that lasts longest. A file that cannot be read is left out; connecting says why.
pub fn certificate_ends(files: &TlsFiles) -> BTreeMap<String, EpochSeconds> {
    let own = files.cert.as_deref().and_then(|path| Some((path, *ends(path)?.first()?)));
    let authorities = files.cacert.as_deref().and_then(|path| Some((path, *ends(path)?.iter().max()?)));
    own.into_iter().chain(authorities).map(|(path, end)| (path.display().to_string(), end)).collect()
}

fn ends(path: &Path) -> Option<Vec<EpochSeconds>> {
    let chain = Certificate::load_pem_chain(&std::fs::read(path).ok()?).ok()?;
    let end = |certificate: &Certificate| {
        let since = certificate.tbs_certificate().validity().not_after.to_unix_duration();
        EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    };
    Some(chain.iter().map(end).collect())
}

/// Says which of the certificates has ended; for the message of a connection that failed.
pub(crate) fn ended(files: &TlsFiles) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = EpochSeconds(i64::try_from(now).unwrap_or(i64::MAX));
    let (file, end) = certificate_ends(files).into_iter().find(|(_, end)| *end <= now)?;
    Some(format!("{} by this machine's clock", certificate_warning(&file, end, now)?))
}
