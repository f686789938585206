//! The names that come first in the keys of a range.

use crate::error::StoreError;
use crate::read::Paging;
use crate::request::Deadline;
use crate::session::Session;
use schema::keys::Prefix;
use std::collections::BTreeSet;

/// Number of names that are found one by one. If there are more, the whole range is listed.
const NAMES_MAX: usize = 64;

impl Session {
    /// Returns the names that follow the prefix in its keys, up to the next slash, as of the given revision or
    /// the present one, and that revision. For each name it reads one key and skips the others, so it is meant
    /// for ranges with many keys and few names.
    ///
    /// # Errors
    /// Returns the store's error; a part of the names is never returned.
    pub async fn read_names(
        &self,
        prefix: &Prefix,
        at: Option<i64>,
        deadline: Deadline,
    ) -> Result<(BTreeSet<String>, i64), StoreError> {
        let start = self.full(prefix);
        let mut names = BTreeSet::new();
        let mut paging = Paging::new(self, prefix, at, 1, true);
        while names.len() < NAMES_MAX {
            let Some(page) = paging.next(self, deadline).await? else {
                return Ok((names, paging.revision()));
            };
            let suffix = page.kvs().first().and_then(|kv| kv.key().get(start.len()..));
            let Some(suffix) = suffix.and_then(|suffix| std::str::from_utf8(suffix).ok()) else { continue };
            let name = first_of(suffix);
            if name.len() < suffix.len() {
                // The zero follows the slash in the order of keys.
                paging.begin_at(format!("{start}{name}0").into_bytes());
            }
            names.insert(name.to_owned());
        }
        let list = self.read_key_list(prefix, Some(paging.revision()), deadline).await?;
        Ok((list.suffixes().map(|suffix| first_of(suffix).to_owned()).collect(), list.revision))
    }
}

fn first_of(suffix: &str) -> &str {
    suffix.split('/').next().unwrap_or(suffix)
}
