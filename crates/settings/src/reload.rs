//! Which settings take effect while the agent runs, and which only at its start.

use super::agent::Settings;
use super::services::{CatalogSettings, ServicesSettings};
use planning::host::SiteConfig;

impl Settings {
    /// Returns the settings of a running agent after it has read new ones, and the names of the
    /// settings that differ and take effect only after a restart. Those keep their old values.
    pub fn reload(&self, new: Self) -> (Self, Vec<&'static str>) {
        // Every setting is named here, so that a new one has to be put on one of the two sides.
        let Self {
            host,
            role,
            group,
            labels,
            state_directory,
            version_file,
            facts_file,
            environment,
            secret_files,
            secret_patterns,
            store,
            http_listen,
            http_names,
            socket,
            http_takes_results,
            http_fleet_lock,
            services,
            catalog,
            dns,
            templates,
            bundles,
            machine_id_file,
            boot_id_file,
            log_level,
            log_format,
            validation_directory,
            validation_timeout,
            policy,
        } = new;
        let mut changed = Vec::new();
        let mut differs = |name: &'static str, differs: bool| {
            if differs && !changed.contains(&name) {
                changed.push(name);
            }
        };
        differs("host", self.host != host);
        differs("driver", self.policy.driver != policy.driver);
        differs("state_directory", self.state_directory != state_directory);
        differs("[identity]", self.machine_id_file != machine_id_file || self.boot_id_file != boot_id_file);
        differs("[store]", self.store != store);
        let http = (http_listen, http_names, socket, http_takes_results, http_fleet_lock);
        let (names, socket) = (self.http_names.clone(), self.socket.clone());
        let own = (self.http_listen, names, socket, self.http_takes_results, self.http_fleet_lock);
        differs("[http]", own != http);
        differs("[dns]", self.dns != dns);
        differs("[log]", (&self.log_level, self.log_format) != (&log_level, log_format));
        differs("services.checks_at_once", self.services.checks_at_once != services.checks_at_once);
        let hiera_file = catalog.hiera_file.clone();
        let of_catalog = |catalog: CatalogSettings| CatalogSettings { hiera_file: None, ..catalog };
        differs("[catalog]", of_catalog(self.catalog.clone()) != of_catalog(catalog));
        let services = ServicesSettings { checks_at_once: self.services.checks_at_once, ..services };
        let settings = Self {
            role,
            group,
            labels,
            version_file,
            facts_file,
            environment,
            secret_files,
            secret_patterns,
            services,
            catalog: CatalogSettings { hiera_file, ..self.catalog.clone() },
            templates,
            bundles,
            validation_directory,
            validation_timeout,
            policy: SiteConfig { driver: self.policy.driver, ..policy },
            ..self.clone()
        };
        (settings, changed)
    }
}

#[cfg(test)]
mod tests {
    use crate::read;

    /// Reloads settings of a host with this text added.
    fn check(text: &str, expected: &[&str]) {
        let settings =
            |text: &str| read(&[("agent.toml".into(), text.into())]).unwrap_or_else(|e| panic!("{e}"));
        let (old, new) = (settings("host = \"h1\"\n"), settings(text));
        let (effective, changed) = old.reload(new.clone());
        assert_eq!(changed, expected, "{text}");
        // What is not named takes effect, and what is named does not.
        assert_eq!(effective == new, expected.is_empty(), "{text}");
        assert_eq!(old.reload(effective).1, [""; 0], "{text}");
    }

    #[test]
    fn settings_that_take_effect_only_at_the_start_keep_their_value_and_are_named() {
        let host = "host = \"h1\"\n";
        check(host, &[]);
        check(&format!("{host}role = \"web\"\n[environment]\nA = \"b\"\n"), &[]);
        check(&format!("{host}[catalog]\nhiera_file = \"/etc/x.yaml\"\n"), &[]);
        check("host = \"h2\"\n", &["host"]);
        check(&format!("{host}[log]\nlevel = \"debug\"\n"), &["[log]"]);
        check(&format!("{host}[http]\nlisten = \"127.0.0.1:1\"\n"), &["[http]"]);
        check(&format!("{host}[http]\ntake_check_results = true\n"), &["[http]"]);
        check(&format!("{host}[http]\nfleet_lock = true\n"), &["[http]"]);
        check(&format!("{host}[http]\nnames = [\"web-1.example.org\"]\n"), &["[http]"]);
        check(&format!("{host}[services]\nchecks_at_once = 3\n"), &["services.checks_at_once"]);
        check(&format!("{host}[catalog]\nentries_max = 7\n"), &["[catalog]"]);
        check(&format!("{host}[identity]\nmachine_id_file = \"/etc/other\"\n"), &["[identity]"]);
        check(
            &format!(
                "{host}state_directory = \"/var/lib/other\"\n[dns]\nlisten = []\n[store]\nnamespace = \"/n\"\n"
            ),
            &["state_directory", "[store]", "[dns]"],
        );
    }
}
