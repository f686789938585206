//! The first settings of a host: its name, and where its store is.

use crate::agent::Settings;
use crate::read::read;
use crate::store::StoreSettings;
use schema::names::{HostName, Role};
use std::collections::BTreeMap;
use toml::{Table, Value};
use toml_reader::SettingsErrors;

/// The settings that a host is set up with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initial {
    /// The name of the host, if it differs from the machine's own name.
    pub host: Option<HostName>,
    /// The role of the host.
    pub role: Option<Role>,
    /// The group of the host.
    pub group: Option<Role>,
    /// Free labels for the roster.
    pub labels: BTreeMap<String, String>,
    /// The store. `backstop` and `live_lease` are not written: their defaults fit every host.
    pub store: StoreSettings,
}

/// Why an agent would not run with the initial settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitialError {
    #[error(transparent)]
    Mistakes(#[from] SettingsErrors),
    /// Another file sets this differently.
    #[error("other settings of this host set {0} differently")]
    Differs(&'static str),
}

impl Initial {
    /// Adds the role, the group and the labels of the earlier settings where these do not set them.
    #[must_use]
    pub fn over(mut self, earlier: &Settings) -> Self {
        self.role = self.role.or_else(|| earlier.role.clone());
        self.group = self.group.or_else(|| earlier.group.clone());
        for (name, value) in &earlier.labels {
            self.labels.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// Returns these settings as a settings file, which reads back as the same values. Values that
    /// have their default are left out. Paths have to be UTF-8, because a settings file cannot
    /// contain others: other paths are left out.
    pub fn to_toml(&self) -> String {
        let mut host = Table::new();
        put(&mut host, "host", self.host.as_ref().map(HostName::as_str));
        put(&mut host, "role", self.role.as_ref().map(Role::as_str));
        put(&mut host, "group", self.group.as_ref().map(Role::as_str));
        if !self.labels.is_empty() {
            let labels = self.labels.iter().map(|(name, value)| (name.clone(), value.clone().into()));
            host.insert("labels".into(), Value::Table(labels.collect()));
        }
        host.insert("store".into(), Value::Table(self.store_table()));
        host.to_string()
    }

    fn store_table(&self) -> Table {
        let StoreSettings {
            endpoints,
            endpoints_file,
            discovery_srv,
            discovery_url,
            discovery_port,
            cacert,
            cert,
            key,
            user,
            password_file,
            namespace,
            backstop: _,
            live_lease: _,
        } = &self.store;
        let mut table = Table::new();
        if let Some(list) = endpoints {
            let list = list.iter().cloned().map(Value::String).collect();
            table.insert("endpoints".into(), Value::Array(list));
        }
        if *discovery_port != StoreSettings::default().discovery_port {
            table.insert("discovery_port".into(), i64::from(*discovery_port).into());
        }
        put(&mut table, "discovery_srv", discovery_srv.as_deref());
        put(&mut table, "discovery_url", discovery_url.as_deref());
        put(&mut table, "user", user.as_deref());
        put(&mut table, "namespace", Some(namespace.as_str()).filter(|text| !text.is_empty()));
        let paths = [
            ("endpoints_file", endpoints_file),
            ("cacert", cacert),
            ("cert", cert),
            ("key", key),
            ("password_file", password_file),
        ];
        for (name, path) in paths {
            put(&mut table, name, path.as_ref().and_then(|path| path.to_str()));
        }
        table
    }

    /// Reads the fragments, which include this one, as an agent with this name does, and checks
    /// that the result contains these settings. A fragment that is read later may override them,
    /// and one that is read earlier may add to them.
    ///
    /// # Errors
    /// Returns the mistakes in the fragments, or the setting that another fragment changes.
    pub fn check(&self, name: &HostName, fragments: &[(String, String)]) -> Result<Settings, InitialError> {
        let whole = read(fragments)?;
        let Settings { host, role, group, labels, store, .. } = &whole;
        let differs = InitialError::Differs;
        let (backstop, live_lease) = (store.backstop, store.live_lease);
        if *store != (StoreSettings { backstop, live_lease, ..self.store.clone() }) {
            return Err(differs("[store]"));
        }
        // A role or group that is not set here may be set in another file.
        let agrees = |here: &Option<Role>, there: &Option<Role>| here.is_none() || here == there;
        if host.as_ref().is_some_and(|host| host.to_lower() != name.to_lower()) {
            return Err(differs("host"));
        }
        if !agrees(&self.role, role) {
            return Err(differs("role"));
        }
        if !agrees(&self.group, group) {
            return Err(differs("group"));
        }
        if self.labels.iter().any(|(name, value)| labels.get(name) != Some(value)) {
            return Err(differs("labels"));
        }
        Ok(whole)
    }
}

fn put(table: &mut Table, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        table.insert(name.into(), text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::PathBuf;

    const OURS: &str = "agent.d/00-bootstrap.toml";

    fn initial(text: &str) -> Initial {
        let Settings { host, role, group, labels, store, .. } =
            read(&[("given".into(), text.into())]).unwrap();
        Initial { host, role, group, labels, store }
    }

    #[test]
    fn it_reads_as_what_it_was_made_of_and_says_nothing_that_is_a_default() {
        let check = |text: &str| assert_eq!(initial(text).to_toml().trim(), text.trim());
        check("[store]\n");
        check("[store]\nendpoints = [\"127.0.0.1:2379\"]\n");
        check(
            "group = \"blue\"\nhost = \"web-1\"\nrole = \"web\"\n\n[labels]\nrack = \"r 12\"\n\n[store]\nendpoints = [\"https://a:1\", \"https://b:2\"]\n",
        );
        check("[store]\ndiscovery_port = 4001\ndiscovery_url = \"https://d/x\"\nnamespace = \"/site\"\n");
    }

    #[test]
    fn what_is_not_said_again_stays() {
        let earlier = read(&[(
            "earlier".into(),
            "role = \"web\"\ngroup = \"blue\"\n[labels]\nrack = \"r1\"\nrow = \"2\"".into(),
        )]);
        let again = initial("role = \"db\"\n[labels]\nrack = \"r9\"\n[store]\nendpoints = [\"e:1\"]")
            .over(&earlier.unwrap());
        let expected = initial(
            "role = \"db\"\ngroup = \"blue\"\n[labels]\nrack = \"r9\"\nrow = \"2\"\n[store]\nendpoints = [\"e:1\"]",
        );
        assert_eq!(again, expected);
    }

    proptest! {
        #[test]
        fn whatever_stands_in_it_is_read_back(
            endpoints in proptest::collection::vec("(https?://)?[a-z.]{1,9}(:[0-9]{1,4})?", 1..4),
            (cacert, key) in (proptest::option::of("/.*"), proptest::option::of("/.*")),
            (user, label) in (proptest::option::of(".*"), ".*"),
            port in any::<u16>(),
        ) {
            let mut made = initial("");
            made.labels.insert("rack".into(), label);
            made.store.endpoints = Some(endpoints);
            made.store.cacert = cacert.map(PathBuf::from);
            made.store.key = key.map(PathBuf::from);
            made.store.user = user;
            made.store.discovery_port = port;
            prop_assert_eq!(initial(&made.to_toml()), made);
        }
    }

    #[test]
    fn settings_that_say_something_else_are_named() {
        let ours = "role = \"web\"\nlabels = { rack = \"r1\" }\n[store]\nendpoints = [\"e:1\"]\n";
        let check = |before: &str, after: &str, expected: Option<&str>| {
            let files = [("agent.toml", before), (OURS, ours), ("agent.d/50-site.toml", after)];
            let files = files.map(|(file, text)| (file.to_owned(), text.to_owned()));
            let found = initial(ours).check(&HostName::new("web-1").unwrap(), &files);
            match expected {
                None => assert_eq!(found.err(), None, "{before} {after}"),
                Some(part) => assert!(found.clone().unwrap_err().to_string().contains(part), "{found:?}"),
            }
        };
        check("", "", None);
        check(
            "role = \"db\"\n[store]\nendpoints = [\"old:1\"]\nbackstop = \"5s\"",
            "labels = { row = \"2\" }",
            None,
        );
        check("[store]\ndiscovery_srv = \"x\"", "", Some("not several"));
        check("[store]\nuser = \"x\"", "", Some("[store]"));
        check("", "[store]\nendpoints = [\"other:1\"]", Some("[store]"));
        check("", "role = \"db\"", Some("role"));
        check("", "host = \"web-1\"", None);
        check("", "host = \"db-7\"", Some("host"));
        check("host = \"db-7\"", "", Some("host"));
        check("", "labels = { rack = \"r2\" }", Some("labels"));
        check("rol = 1", "", Some("agent.toml:1"));
    }
}
