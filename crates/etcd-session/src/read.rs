//! Linearizable reads, each at one revision, regardless of the number of pages.
//!
//! This file is long because all reads share the rules for pages and revisions.

use crate::error::StoreError;
use crate::observer::RequestKind;
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use etcd_client::{
    Client, GetOptions, GetResponse, KeyValue, KvClient, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use schema::keys::{Key, Prefix};
use schema::reads::{Keys, Read};
use schema::snapshot::{Entry, KeySnapshot};
use schema::transaction::OPERATIONS_MAX;
use std::collections::BTreeMap;

/// Number of keys in one page of a keys-only read. Pages are large because etcd walks the whole
/// range for every page.
const KEYS_PER_PAGE: i64 = 60_000;
/// Number of entries in the first page with values. The next pages are sized by the values read so
/// far.
const VALUES_PER_PAGE: i64 = 10_000;
/// Number of entries of each range that the transaction reads which also reads the keys. Most ranges are smaller.
pub(crate) const VALUES_TOGETHER: i64 = 1_000;
/// Intended size of a page of values, in bytes.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Largest answer that is decoded, in bytes. The library's default of 4 MiB is too small for
/// 100,000 keys.
pub(crate) const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Returns the client for keys, which takes long answers.
pub(crate) fn key_values(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(ANSWER_MAX_BYTES)
}

/// The keys of a range at one revision, without their values.
#[derive(Debug)]
pub struct KeyList {
    /// Revision of the store at which the keys were read.
    pub revision: i64,
    prefix_bytes: usize,
    pages: Vec<GetResponse>,
}

impl KeyList {
    /// Returns the part of each key after the prefix, in the order of the store. Keys that are not
    /// UTF-8 are skipped.
    pub fn suffixes(&self) -> impl Iterator<Item = &str> {
        let keys = self.pages.iter().flat_map(|page| page.kvs());
        keys.filter_map(|kv| kv.key().get(self.prefix_bytes..).and_then(|k| std::str::from_utf8(k).ok()))
    }

    /// Like [`Self::suffixes`], but only for keys that are attached to a lease.
    pub fn leased_suffixes(&self) -> impl Iterator<Item = &str> {
        let keys = self.pages.iter().flat_map(|page| page.kvs()).filter(|kv| kv.lease() != 0);
        keys.filter_map(|kv| kv.key().get(self.prefix_bytes..).and_then(|k| std::str::from_utf8(k).ok()))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.pages.iter().map(|page| page.kvs().len()).sum()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keys that are counted and not read.
#[derive(Debug, Clone, Copy)]
pub enum Counted<'a> {
    /// The keys of a range.
    Range(&'a Prefix),
    /// The keys of a range without those of a part of it.
    Outside {
        range: &'a Prefix,
        /// The part, whose keys are not counted.
        part: &'a Prefix,
    },
}

/// One page of the entries of a range, in the form in which it was received.
#[derive(Debug)]
pub struct EntryPage {
    namespace_bytes: usize,
    page: GetResponse,
}

impl EntryPage {
    /// Returns the keys without the namespace, and their values, in the order of the store. Keys
    /// that are not UTF-8 are skipped.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.page.kvs().iter().filter_map(|kv| {
            let key = kv.key().get(self.namespace_bytes..)?;
            Some((std::str::from_utf8(key).ok()?, kv.value()))
        })
    }
}

impl Session {
    /// Reads single keys, all at one revision.
    ///
    /// # Errors
    /// Returns the store's error; a part of the keys is never returned.
    pub async fn read_keys(&self, keys: &[Key], deadline: Deadline) -> Result<KeySnapshot, StoreError> {
        self.read_all(keys, &[], None, deadline).await
    }

    /// Reads keys and ranges with their values, all at one revision: the given one, or that of the
    /// first answer.
    ///
    /// # Errors
    /// Returns the store's error; a partial result is never returned.
    pub async fn read_all(
        &self,
        keys: &[Key],
        prefixes: &[Prefix],
        at: Option<i64>,
        deadline: Deadline,
    ) -> Result<KeySnapshot, StoreError> {
        self.read_together(&Read::all(keys, prefixes), at, deadline).await
    }

    /// Reads all of this at one revision: the given one, or that of the first answer. One transaction reads
    /// the keys and the first entries of every range; larger ranges need more requests.
    ///
    /// # Errors
    /// Returns the store's error; a partial result is never returned.
    pub async fn read_together(
        &self,
        reads: &[Read],
        at: Option<i64>,
        deadline: Deadline,
    ) -> Result<KeySnapshot, StoreError> {
        let mut entries = BTreeMap::new();
        let parts = self.read_parts(reads, at, deadline, |_, kv| self.insert(kv, &mut entries));
        // Boxed, because this future takes kilobytes, and callers contain several of them.
        let found = Box::pin(parts).await?;
        Ok(KeySnapshot { entries, ..found })
    }

    /// Reads keys and ranges as [`Self::read_all`], but passes the keys and entries of the ranges to `take`, part by
    /// part, and returns those of `keys` alone: for ranges of which the caller keeps little.
    ///
    /// # Errors
    /// Returns the store's error; what was passed until then is only a part.
    pub async fn read_each(
        &self,
        keys: &[Key],
        prefixes: &[Prefix],
        at: Option<i64>,
        deadline: Deadline,
        mut take: impl FnMut(&str, FoundEntry<'_>),
    ) -> Result<KeySnapshot, StoreError> {
        let mut entries = BTreeMap::new();
        let take = |read: &Read, kv: &KeyValue| match (read, self.strip(kv.key())) {
            (Read::Range(_), Some(key)) => take(key, FoundEntry(kv)),
            _ => self.insert(kv, &mut entries),
        };
        let found = Box::pin(self.read_parts(&Read::all(keys, prefixes), at, deadline, take)).await?;
        Ok(KeySnapshot { entries, ..found })
    }

    /// Reads all of this at one revision and passes on each entry, with what it is a part of. Returns a snapshot without
    /// entries.
    async fn read_parts(
        &self,
        reads: &[Read],
        at: Option<i64>,
        deadline: Deadline,
        mut take: impl FnMut(&Read, &KeyValue),
    ) -> Result<KeySnapshot, StoreError> {
        let mut snapshot = KeySnapshot { revision: at.unwrap_or(0), ..KeySnapshot::default() };
        let (mut held, mut unread) = (Vec::new(), Vec::new());
        for chunk in reads.chunks(OPERATIONS_MAX) {
            match self.read_chunk(chunk, &mut snapshot, deadline).await {
                Ok((first, rests)) => {
                    held.extend(first);
                    unread.extend(rests);
                }
                // Some ranges hold large values: each is read in parts that fit.
                Err(StoreError::TooLarge { .. }) => {
                    let (ranges, others): (Vec<Read>, Vec<Read>) =
                        chunk.iter().cloned().partition(|read| matches!(read, Read::Range(_)));
                    held.extend(self.read_chunk(&others, &mut snapshot, deadline).await?.0);
                    unread.extend(ranges.iter().filter_map(|read| self.rest(read, None)));
                }
                Err(error) => return Err(error),
            }
        }
        // While the store works on pages of two ranges, what was read before is passed on.
        let mut ranges = unread.into_iter().map(|(read, mut paging)| {
            paging.snapshot.revision = snapshot.revision;
            (read, paging)
        });
        let (mut one, mut other) = (ranges.next(), ranges.next());
        while one.is_some() || other.is_some() {
            let passing = pass_on(std::mem::take(&mut held), &mut take);
            let (of_one, of_other, ()) = tokio::join!(
                self.next_part(&mut one, deadline),
                self.next_part(&mut other, deadline),
                passing
            );
            held.extend(of_one?.into_iter().chain(of_other?));
            one = one.or_else(|| ranges.next());
            other = other.or_else(|| ranges.next());
        }
        pass_on(held, &mut take).await;
        Ok(snapshot)
    }

    /// The same for a caller that writes by what it reads. It has judged the store in this history of the marks;
    /// what a store answers that was restored since then is refused.
    ///
    /// # Errors
    /// Returns [`StoreError::WentBack`] for such an answer, or the store's error.
    pub async fn read_judged(
        &self,
        history: u64,
        reads: &[Read],
        at: Option<i64>,
        deadline: Deadline,
    ) -> Result<KeySnapshot, StoreError> {
        let marks = self.marks();
        let found = self.read_together(reads, at, deadline).await?;
        // Only a read without a given revision says which one is the present.
        let is_older = at.is_none() && !marks.regress(&found).is_none();
        if is_older || marks.history != history || self.marks().history != history {
            return Err(StoreError::WentBack { operation: "read" });
        }
        Ok(found)
    }

    /// Reads the next page of a range. After the last one, there is no range any more.
    async fn next_part(
        &self,
        range: &mut Option<(Read, Paging)>,
        deadline: Deadline,
    ) -> Result<Option<Part>, StoreError> {
        let Some((read, paging)) = range else { return Ok(None) };
        let page = paging.next(self, deadline).await?.map(|page| (read.clone(), page));
        if page.is_none() {
            *range = None;
        }
        Ok(page)
    }

    /// Executes some reads in one transaction. Returns what was read, and readers of what did not fit.
    async fn read_chunk(
        &self,
        chunk: &[Read],
        snapshot: &mut KeySnapshot,
        deadline: Deadline,
    ) -> Result<(Vec<Part>, Vec<(Read, Paging)>), StoreError> {
        let operations: Vec<TxnOp> =
            chunk.iter().map(|read| self.operation(read, snapshot.revision)).collect();
        let answer = self.commit_reads(&operations, deadline).await?;
        self.note_header(answer.header(), snapshot)?;
        let first: Vec<Part> = chunk.iter().cloned().zip(get_responses(&answer)).collect();
        let rests = first.iter().filter(|(_, got)| got.more());
        let rests = rests.filter_map(|(read, got)| self.rest(read, Some(got))).collect();
        Ok((first, rests))
    }

    /// Returns a read as an operation of a transaction, at a revision; 0 is the newest.
    pub(crate) fn operation(&self, read: &Read, at: i64) -> TxnOp {
        let options = GetOptions::new().with_revision(at);
        match read {
            Read::Key(key) => TxnOp::get(self.full(key), Some(options)),
            Read::Range(range) => {
                let options = options.with_range(range_end(self.full(range).as_bytes()));
                TxnOp::get(self.full(range), Some(options.with_limit(VALUES_TOGETHER)))
            }
            Read::NextAfter { range, key, count } => {
                let options = options.with_range(range_end(self.full(range).as_bytes()));
                TxnOp::get(key_after(self.full(key).as_bytes()), Some(options.with_limit(i64::from(*count))))
            }
        }
    }

    /// Returns a reader of the entries of a range after the last one that was read; `None` if the read is no range.
    fn rest(&self, read: &Read, first: Option<&GetResponse>) -> Option<(Read, Paging)> {
        let Read::Range(range) = read else { return None };
        let mut paging = Paging::new(self, range, None, VALUES_PER_PAGE, false);
        if let Some(first) = first {
            paging.continue_after(first);
        }
        Some((read.clone(), paging))
    }

    /// Commits a transaction that only reads.
    pub(crate) async fn commit_reads(
        &self,
        gets: &[TxnOp],
        deadline: Deadline,
    ) -> Result<TxnResponse, StoreError> {
        self.call(RequestKind::Read, "read", Repeat::Freely, deadline, |client| {
            let gets = gets.to_vec();
            async move { key_values(&client).txn(Txn::new().and_then(gets)).await }
        })
        .await
    }

    /// Reads the keys of a range without their values, at the given revision or the newest one.
    ///
    /// # Errors
    /// Returns the store's error; a part of the range is never returned.
    pub async fn read_key_list(
        &self,
        prefix: &Prefix,
        at: Option<i64>,
        deadline: Deadline,
    ) -> Result<KeyList, StoreError> {
        let paging = Paging::new(self, prefix, at, KEYS_PER_PAGE, true);
        let (pages, snapshot) = self.pages(paging, deadline).await?;
        Ok(KeyList { revision: snapshot.revision, prefix_bytes: self.full(prefix).len(), pages })
    }

    /// Reads the keys of a range without their values, at a revision, in four parts at the same time. A store
    /// with several processors answers sooner than for the whole range. `cuts` are the texts after the prefix at
    /// which the second, third and fourth part begin, in ascending order; no key has to exist there.
    ///
    /// # Errors
    /// Returns the store's error; a part of the range is never returned.
    pub async fn read_key_list_in_parts(
        &self,
        prefix: &Prefix,
        cuts: [&str; 3],
        at: i64,
        deadline: Deadline,
    ) -> Result<KeyList, StoreError> {
        let start = self.full(prefix);
        let [a, b, c] = cuts.map(|cut| format!("{start}{cut}").into_bytes());
        let whole = || Paging::new(self, prefix, Some(at), KEYS_PER_PAGE, true);
        // Each part has an end of its own, because etcd walks from the first key to the end for every page.
        let parts = tokio::try_join!(
            self.pages(Paging { end: a.clone(), ..whole() }, deadline),
            self.pages(Paging { from: a, end: b.clone(), ..whole() }, deadline),
            self.pages(Paging { from: b, end: c.clone(), ..whole() }, deadline),
            self.pages(Paging { from: c, ..whole() }, deadline),
        )?;
        let pages = [parts.0.0, parts.1.0, parts.2.0, parts.3.0].into_iter().flatten().collect();
        Ok(KeyList { revision: at, prefix_bytes: start.len(), pages })
    }

    /// Reads the entries of a range page by page and passes each page to `take`, all at one
    /// revision: the given one, or that of the first page. Returns that revision. Each page is
    /// freed before the next is read, for ranges of which the caller keeps little.
    ///
    /// # Errors
    /// Returns the store's error; the pages passed until then are only a part of the range.
    pub async fn read_entry_pages(
        &self,
        prefix: &Prefix,
        at: Option<i64>,
        deadline: Deadline,
        mut take: impl FnMut(&EntryPage),
    ) -> Result<i64, StoreError> {
        let namespace_bytes = self.config().namespace.len();
        let mut paging = Paging::new(self, prefix, at, VALUES_PER_PAGE, false);
        while let Some(page) = paging.next(self, deadline).await? {
            take(&EntryPage { namespace_bytes, page });
        }
        Ok(paging.snapshot.revision)
    }

    /// Reads the keys of a range without their values; returns `None` if there are more than the limit.
    ///
    /// # Errors
    /// Returns the store's error; a part of the range is never returned.
    pub async fn read_short_key_list(
        &self,
        prefix: &Prefix,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Option<KeyList>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut paging = Paging::new(self, prefix, None, limit, true);
        let pages = Vec::from_iter(paging.next(self, deadline).await?);
        let (revision, prefix_bytes) = (paging.snapshot.revision, self.full(prefix).len());
        Ok(paging.done.then_some(KeyList { revision, prefix_bytes, pages }))
    }

    /// Reads several ranges with their values, all at one revision.
    ///
    /// # Errors
    /// Returns the store's error; a part of the ranges is never returned.
    pub async fn read_ranges(
        &self,
        prefixes: &[Prefix],
        deadline: Deadline,
    ) -> Result<KeySnapshot, StoreError> {
        self.read_all(&[], prefixes, None, deadline).await
    }

    /// Reads keys and counts others, at the given revision or the newest one, in one transaction of at most 128
    /// operations.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn read_and_count(
        &self,
        keys: &[Key],
        counted: &[Counted<'_>],
        at: Option<i64>,
        deadline: Deadline,
    ) -> Result<(KeySnapshot, Vec<i64>), StoreError> {
        let mut snapshot = KeySnapshot { revision: at.unwrap_or(0), ..KeySnapshot::default() };
        let reads = keys.iter().map(|key| self.operation(&Read::Key(key.clone()), snapshot.revision));
        let operations: Vec<TxnOp> = reads.chain(self.counts(counted, snapshot.revision)).collect();
        let answer = self.commit_reads(&operations, deadline).await?;
        self.note_header(answer.header(), &mut snapshot)?;
        let mut answers = get_responses(&answer);
        for kv in answers.by_ref().take(keys.len()).flat_map(|mut got| got.take_kvs()) {
            self.insert(&kv, &mut snapshot.entries);
        }
        let count = |counted: &Counted<'_>| {
            let operations = match counted {
                Counted::Range(_) => 1,
                Counted::Outside { .. } => 2,
            };
            answers.by_ref().take(operations).map(|got| got.count()).sum()
        };
        let counts = counted.iter().map(count).collect();
        Ok((snapshot, counts))
    }

    /// Returns the operations that count.
    fn counts(&self, counted: &[Counted<'_>], at: i64) -> Vec<TxnOp> {
        let count = |from: Vec<u8>, end: Vec<u8>| {
            TxnOp::get(from, Some(GetOptions::new().with_range(end).with_count_only().with_revision(at)))
        };
        let mut operations = Vec::new();
        for counted in counted {
            match counted {
                Counted::Range(range) => {
                    let from = self.full(range).into_bytes();
                    operations.push(count(from.clone(), range_end(&from)));
                }
                Counted::Outside { range, part } => {
                    let (from, part) = (self.full(range).into_bytes(), self.full(part).into_bytes());
                    operations.push(count(from.clone(), part.clone()));
                    operations.push(count(range_end(&part), range_end(&from)));
                }
            }
        }
        operations
    }

    async fn pages(
        &self,
        mut paging: Paging,
        deadline: Deadline,
    ) -> Result<(Vec<GetResponse>, KeySnapshot), StoreError> {
        let mut pages = Vec::new();
        while let Some(page) = paging.next(self, deadline).await? {
            pages.push(page);
        }
        Ok((pages, paging.snapshot))
    }

    /// Returns a reader of a key, or of a range with its values in parts, all at one revision.
    pub(crate) fn listing(&self, keys: &Keys) -> Listing<'_> {
        let paging = match keys {
            Keys::Below(prefix) => Paging::new(self, prefix, None, VALUES_PER_PAGE, false),
            Keys::One(key) => Paging::of_key(self, key),
        };
        Listing { session: self, paging }
    }

    /// Adds the entries that a transaction read to a snapshot. `last` are the last ones of its reads. Returns false if a
    /// range of these holds more.
    pub(crate) fn merge(
        &self,
        answer: &TxnResponse,
        last: &[Read],
        snapshot: &mut KeySnapshot,
    ) -> Result<bool, StoreError> {
        self.note_header(answer.header(), snapshot)?;
        let parts: Vec<GetResponse> = get_responses(answer).collect();
        for kv in parts.iter().flat_map(GetResponse::kvs) {
            self.insert(kv, &mut snapshot.entries);
        }
        let mut last = last.iter().rev().zip(parts.iter().rev());
        Ok(!last.any(|(read, got)| matches!(read, Read::Range(_)) && got.more()))
    }

    fn insert(&self, kv: &KeyValue, entries: &mut BTreeMap<String, Entry>) {
        if let Some(key) = self.strip(kv.key()) {
            entries.insert(key.to_owned(), entry_of(kv));
        }
    }

    /// Returns a key without the namespace, or `None` if it is not UTF-8 or outside of the
    /// namespace.
    pub(crate) fn strip<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key).ok()?.strip_prefix(self.config().namespace.as_str())
    }

    /// Returns a key without the namespace, and its entry. They are moved out of the answer, because a list may be the
    /// whole store.
    fn unpack(&self, kv: KeyValue) -> Option<(String, Entry)> {
        let (create_revision, mod_revision) = (kv.create_revision(), kv.mod_revision());
        let (lease, version) = (kv.lease(), kv.version());
        let (key, value) = kv.into_key_value();
        let namespace = self.config().namespace.as_str();
        let mut key = String::from_utf8(key).ok()?;
        if !key.starts_with(namespace) {
            return None;
        }
        key.drain(..namespace.len());
        Some((key, Entry { value, create_revision, mod_revision, lease, version }))
    }

    fn note_header(
        &self,
        header: Option<&etcd_client::ResponseHeader>,
        snapshot: &mut KeySnapshot,
    ) -> Result<(), StoreError> {
        let header =
            header.ok_or(StoreError::BadAnswer { operation: "read", detail: "it has no header".into() })?;
        if snapshot.revision == 0 {
            snapshot.revision = header.revision();
        }
        snapshot.raft_term = header.raft_term();
        self.remember_marks(header.revision(), header.raft_term());
        Ok(())
    }
}

/// Position of a reader in a range.
pub(crate) struct Paging {
    from: Vec<u8>,
    end: Vec<u8>,
    limit: i64,
    keys_only: bool,
    /// Holds the revision of all pages, which the first page determines unless it is given.
    snapshot: KeySnapshot,
    done: bool,
}

impl Paging {
    pub(crate) fn new(
        session: &Session,
        prefix: &Prefix,
        at: Option<i64>,
        limit: i64,
        keys_only: bool,
    ) -> Self {
        let from = session.full(prefix).into_bytes();
        let snapshot = KeySnapshot { revision: at.unwrap_or(0), ..KeySnapshot::default() };
        Self { end: range_end(&from), from, limit, keys_only, snapshot, done: false }
    }

    fn of_key(session: &Session, key: &Key) -> Self {
        let from = session.full(key).into_bytes();
        let snapshot = KeySnapshot::default();
        Self { end: key_after(&from), from, limit: 1, keys_only: false, snapshot, done: false }
    }

    /// Continues with this key or the first one after it.
    pub(crate) fn begin_at(&mut self, key: Vec<u8>) {
        self.from = key;
    }

    /// Returns the revision of all pages; 0 before the first one.
    pub(crate) fn revision(&self) -> i64 {
        self.snapshot.revision
    }

    /// Continues with the key after the last one of a page. The size of the next page follows from that of its values.
    fn continue_after(&mut self, page: &GetResponse) {
        if let Some(last) = page.kvs().last() {
            self.from = key_after(last.key());
        }
        if !self.keys_only {
            let bytes: usize = page.kvs().iter().map(|kv| kv.key().len() + kv.value().len()).sum();
            let fitting = page.kvs().len().max(1) * PAGE_BYTES / bytes.max(1);
            self.limit = i64::try_from(fitting).unwrap_or(i64::MAX).clamp(1, KEYS_PER_PAGE);
        }
    }

    /// Reads the next page; returns `None` after the last one.
    pub(crate) async fn next(
        &mut self,
        session: &Session,
        deadline: Deadline,
    ) -> Result<Option<GetResponse>, StoreError> {
        if self.done {
            return Ok(None);
        }
        let page = loop {
            let page_request = session.call(RequestKind::List, "list", Repeat::Freely, deadline, |client| {
                let mut options = GetOptions::new()
                    .with_range(self.end.clone())
                    .with_limit(self.limit)
                    .with_revision(self.snapshot.revision);
                if self.keys_only {
                    options = options.with_keys_only();
                }
                let from = self.from.clone();
                async move { key_values(&client).get(from, Some(options)).await }
            });
            match page_request.await {
                // Values here are larger than the earlier ones: retry with fewer entries.
                Err(StoreError::TooLarge { .. }) if self.limit > 1 => self.limit = (self.limit / 16).max(1),
                other => break other?,
            }
        };
        session.note_header(page.header(), &mut self.snapshot)?;
        self.continue_after(&page);
        self.done = !page.more() || page.kvs().is_empty();
        Ok(Some(page))
    }
}

/// Reader of a range, in parts.
pub(crate) struct Listing<'a> {
    session: &'a Session,
    paging: Paging,
}

impl Listing<'_> {
    /// Returns the next part, or `None` after the last one.
    ///
    /// # Errors
    /// Returns the store's error.
    pub(crate) async fn next(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<Vec<(String, Entry)>>, StoreError> {
        let Some(mut page) = self.paging.next(self.session, deadline).await? else { return Ok(None) };
        Ok(Some(page.take_kvs().into_iter().filter_map(|kv| self.session.unpack(kv)).collect()))
    }

    /// Returns the revision of all parts; 0 before the first part.
    pub(crate) fn revision(&self) -> i64 {
        self.paging.snapshot.revision
    }
}

/// Returns the responses to the reads of a transaction. The client copies them.
pub(crate) fn get_responses(answer: &TxnResponse) -> impl Iterator<Item = GetResponse> + use<> {
    answer.op_responses().into_iter().filter_map(|response| match response {
        TxnOpResponse::Get(got) => Some(got),
        _ => None,
    })
}

/// Entries that were read, and what they are a part of.
type Part = (Read, GetResponse);

/// Passes on entries, some at a time, so that the answers of the store are taken meanwhile.
async fn pass_on(parts: Vec<Part>, take: &mut impl FnMut(&Read, &KeyValue)) {
    const AT_A_TIME: usize = 200;
    for (read, page) in parts {
        for some in page.kvs().chunks(AT_A_TIME) {
            some.iter().for_each(|kv| take(&read, kv));
            tokio::task::yield_now().await;
        }
    }
}

/// An entry in the answer of the store.
#[derive(Debug, Clone, Copy)]
pub struct FoundEntry<'a>(&'a KeyValue);

impl<'a> FoundEntry<'a> {
    pub fn value(self) -> &'a [u8] {
        self.0.value()
    }

    /// Returns the revision at which the key was last written.
    pub fn mod_revision(self) -> i64 {
        self.0.mod_revision()
    }

    /// Returns how often the key was written since it exists.
    pub fn version(self) -> i64 {
        self.0.version()
    }

    /// Returns a copy, to keep.
    pub fn to_entry(self) -> Entry {
        entry_of(self.0)
    }
}

/// Returns the value and metadata of a key that was read.
pub(crate) fn entry_of(kv: &KeyValue) -> Entry {
    Entry {
        value: kv.value().to_vec(),
        create_revision: kv.create_revision(),
        mod_revision: kv.mod_revision(),
        lease: kv.lease(),
        version: kv.version(),
    }
}

/// Returns the first key after this one.
pub(crate) fn key_after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Returns the first key after all keys with this prefix. Prefixes end in a slash here, so the last
/// byte has a successor.
pub(crate) fn range_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}
