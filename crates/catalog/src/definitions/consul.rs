//! Consul's JSON, as its agent reads it from its configuration directory. Source of the field list:
//! Consul's `agent/config/config.go` (ServiceDefinition, CheckDefinition). Names are compared
//! without case and underscores, as Consul's decoder does. A field that is not supported here is
//! refused by name.
//!
//! This file is long because it lists every field of Consul's format.

use crate::definitions::service::{
    CheckDefinition, CheckKind, DefinitionError, DefinitionErrors, Parsed, ServiceAddress, ServiceDefinition,
    check_id,
};
use crate::json;
use schema::health::CheckStatus;
use schema::names::{ServiceName, Tag, quoted};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use toml_reader::text::{line_of, nearest};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);

/// Refused fields of a service: the name without case and underscores, and an explanation or an
/// alternative.
pub(super) const REFUSED_OF_SERVICES: [(&str, &str); 10] = [
    ("connect", "there is no mesh of proxies here"),
    ("kind", "there is no mesh of proxies here"),
    ("locality", "answers contain no locality; use a tag or meta"),
    ("namespace", "there is only one namespace; make the name unique"),
    ("partition", "there is only one partition; make the name unique"),
    ("peer", "services come from this fleet alone"),
    ("ports", "a service has one port, in the field port"),
    ("proxy", "there is no mesh of proxies here"),
    ("socketpath", "a service is found by address and port"),
    ("taggedaddresses", "a service has the same address for everybody, in the field address"),
];

/// Refused fields of a check, in the same form.
pub(super) const REFUSED_OF_CHECKS: [(&str, &str); 15] = [
    ("aliasnode", "the checks of a host count for all of its services already"),
    ("aliasservice", "add a check to this service instead"),
    ("disableredirects", "redirects are always followed; use args with curl for other behaviour"),
    ("dockercontainerid", "args can run docker exec"),
    ("failuresbeforewarning", "a warning counts at once; failures_before_critical is read"),
    ("grpc", "args can run a program such as grpc_health_probe"),
    ("grpcusetls", "args can run a program such as grpc_health_probe"),
    ("h2ping", "tcp, http or a program in args can check the port"),
    ("h2pingusetls", "tcp, http or a program in args can check the port"),
    ("osservice", "args can run systemctl is-active"),
    ("outputmaxsize", "the output is limited to its last 4096 bytes"),
    ("shell", "script runs in /bin/sh; args can name another shell"),
    ("tcpusetls", "tcp only connects; use args with a program that speaks TLS"),
    ("tlsservername", "the host name of the URL is used; use args with curl for another name"),
    ("udp", "use args with a program that sends the request"),
];

/// Top-level keys that configure Consul's agent itself. They are ignored; any other unknown key is
/// a mistake.
#[rustfmt::skip]
const OF_CONSUL: &[&str] = &[
    "acl", "acl_agent_master_token", "acl_agent_token", "acl_datacenter", "acl_default_policy", "acl_down_policy",
    "acl_enable_key_list_policy", "acl_enforce_version_8", "acl_master_token", "acl_replication_token", "acl_token",
    "acl_ttl", "addresses", "advertise_addr", "advertise_addr_ipv4", "advertise_addr_ipv6", "advertise_addr_wan",
    "advertise_addr_wan_ipv4", "advertise_addr_wan_ipv6", "advertise_reconnect_timeout", "alt_domain", "audit",
    "auto_config", "auto_encrypt", "auto_reload_config", "autopilot", "bind_addr", "bootstrap", "bootstrap_expect",
    "ca_file", "ca_path", "cache", "cert_file", "check_output_max_size", "check_update_interval", "client_addr", "cloud",
    "config_entries", "connect", "data_dir", "datacenter", "default_intention_policy", "default_query_time",
    "disable_anonymous_signature", "disable_coordinates", "disable_host_node_id", "disable_http_unprintable_char_filter",
    "disable_keyring_file", "disable_remote_exec", "disable_update_check", "discard_check_output", "discovery_max_stale",
    "dns_config", "domain", "enable_acl_replication", "enable_agent_tls_for_checks", "enable_central_service_config",
    "enable_debug", "enable_key_list_policy", "enable_local_script_checks", "enable_script_checks", "enable_syslog",
    "encrypt", "encrypt_verify_incoming", "encrypt_verify_outgoing", "experiments", "gossip_lan", "gossip_wan",
    "http_config", "key_file", "leave_on_terminate", "license_path", "limits", "locality", "log_file", "log_json",
    "log_level", "log_rotate_bytes", "log_rotate_duration", "log_rotate_max_files", "max_query_time", "node_id",
    "node_meta", "node_name", "non_voting_server", "partition", "peering", "performance", "pid_file", "ports",
    "primary_datacenter", "primary_gateways", "primary_gateways_interval", "protocol", "raft_boltdb", "raft_logstore",
    "raft_protocol", "raft_snapshot_interval", "raft_snapshot_threshold", "raft_trailing_logs", "read_replica",
    "reconnect_timeout", "reconnect_timeout_wan", "recursors", "rejoin_after_leave", "reporting", "retry_interval",
    "retry_interval_wan", "retry_join", "retry_join_wan", "retry_max", "retry_max_wan", "rpc", "segment", "segments",
    "serf_lan", "serf_lan_allowed_cidrs", "serf_wan", "serf_wan_allowed_cidrs", "server", "server_name",
    "server_rejoin_age_max", "session_ttl_min", "skip_leave_on_interrupt", "start_join", "start_join_wan",
    "syslog_facility", "telemetry", "tls", "tls_cipher_suites", "tls_min_version", "tls_prefer_server_cipher_suites",
    "translate_wan_addrs", "ui", "ui_config", "ui_content_path", "ui_dir", "unix_sockets", "use_streaming_backend",
    "verify_incoming", "verify_incoming_https", "verify_incoming_rpc", "verify_outgoing", "verify_server_hostname",
    "version", "version_prerelease", "watches", "xds",
];

/// A mistake, and the field that contains it, by which its line is found.
struct Mistake {
    field: String,
    message: String,
}

fn mistake(field: &str, message: impl Into<String>) -> Mistake {
    Mistake { field: field.to_owned(), message: message.into() }
}

/// Parses one file.
///
/// # Errors
/// Returns the first mistake of each service and of each check, with its line if that is known.
pub(super) fn parse_consul(file: &str, text: &str) -> Result<Parsed, DefinitionErrors> {
    let error = |line, message| DefinitionError { file: file.to_owned(), line, message };
    let value = json::read(text).map_err(|e| {
        let is_twice = e.is_data();
        error(Some(e.line()), if is_twice { e.to_string() } else { format!("this is not JSON: {e}") })
    })?;
    let Value::Object(top) = value else {
        return Err(error(Some(1), "the file must hold one JSON object".into()).into());
    };
    let (parsed, mistakes) = read_file(&top);
    if mistakes.is_empty() {
        return Ok(parsed);
    }
    let errors = mistakes.into_iter().map(|m| error(line_of(text, &format!("\"{}\"", m.field)), m.message));
    Err(DefinitionErrors(errors.collect()))
}

fn read_file(top: &Map<String, Value>) -> (Parsed, Vec<Mistake>) {
    let mut parsed = Parsed::default();
    let mut mistakes = Vec::new();
    for (key, value) in top {
        let read = match folded(key).as_str() {
            "service" => vec![parsed.add_service(key, value)],
            "services" => match list(key, value) {
                Ok(values) => values.iter().map(|value| parsed.add_service(key, value)).collect(),
                Err(mistake) => vec![Err(mistake)],
            },
            "check" => vec![parsed.add_check(key, value)],
            "checks" => match list(key, value) {
                Ok(values) => values.iter().map(|value| parsed.add_check(key, value)).collect(),
                Err(mistake) => vec![Err(mistake)],
            },
            other if OF_CONSUL.iter().any(|name| folded(name) == other) => Vec::new(),
            other => {
                let known = ["service", "services", "check", "checks"].iter().chain(OF_CONSUL).copied();
                let meant = nearest(other, known).map(|name| format!("; did you mean {name}?"));
                let message = format!("{}: Consul has no such key{}", quoted(key), meant.unwrap_or_default());
                vec![Err(mistake(key, message))]
            }
        };
        mistakes.extend(read.into_iter().filter_map(Result::err));
    }
    (parsed, mistakes)
}

impl Parsed {
    fn add_service(&mut self, key: &str, value: &Value) -> Result<(), Mistake> {
        let mut fields = Fields::of(key, value)?;
        let name = fields.text("name")?.ok_or_else(|| mistake(key, "a service needs a name"))?;
        let name = ServiceName::new(name).map_err(|e| mistake("name", e.to_string()))?;
        let mut service = ServiceDefinition::bare(name.clone());
        if let Some(id) = fields.text("id")? {
            service.id = id;
        }
        for tag in fields.texts("tags")? {
            service.tags.insert(Tag::new(tag).map_err(|e| mistake("tags", e.to_string()))?);
        }
        if let Some(address) = fields.text("address")?.filter(|text| !text.is_empty()) {
            let address = ServiceAddress::try_from(address);
            service.address = Some(address.map_err(|error| mistake("address", error))?);
        }
        if let Some(port) = fields.number("port")?.filter(|port| *port != 0) {
            let parsed = u16::try_from(port);
            service.port =
                Some(parsed.map_err(|_| mistake("port", format!("{port} is no port: 1 to 65535")))?);
        }
        service.meta = fields.map("meta")?;
        let check = fields.take("check");
        let checks = fields.take("checks");
        if let Some((field, _)) = fields.take("token") {
            self.notes.push(format!("service {name}: {field} counts for nothing: there are no ACLs here"));
        }
        if let Some((field, Value::Bool(true))) = fields.take("enabletagoverride") {
            return Err(unsupported(&field, "only the files of a host set its tags"));
        }
        if let Some((field, weights)) = fields.take("weights")
            && !matches!(&weights, Value::Object(w) if w.values().all(|n| *n == 1))
        {
            return Err(mistake(&field, format!("{field} other than 1 are not supported")));
        }
        fields.refuse(&REFUSED_OF_SERVICES)?;
        fields.finish("service")?;
        let many = match (&check, &checks) {
            (Some((field, value)), _) => vec![(field.clone(), value.clone())],
            (None, Some((field, value))) => {
                list(field, value)?.iter().map(|value| (field.clone(), value.clone())).collect()
            }
            (None, None) => Vec::new(),
        };
        if check.is_some() && checks.is_some() {
            return Err(mistake("checks", "give check or checks, not both"));
        }
        let several = many.len() > 1;
        for (number, (field, value)) in many.iter().enumerate() {
            let number = several.then_some(number + 1);
            let (_, check) = read_check(field, value, Some(&service.id), number)?;
            service.checks.push(check);
        }
        self.services.push(service);
        Ok(())
    }

    fn add_check(&mut self, key: &str, value: &Value) -> Result<(), Mistake> {
        let (service, check) = read_check(key, value, None, None)?;
        self.checks.push((service, check));
        Ok(())
    }
}

fn unsupported(field: &str, instead: &str) -> Mistake {
    mistake(field, format!("{field} is not supported: {instead}"))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn read_check(
    key: &str,
    value: &Value,
    of: Option<&str>,
    number: Option<usize>,
) -> Result<(Option<String>, CheckDefinition), Mistake> {
    let mut fields = Fields::of(key, value)?;
    fields.refuse(&REFUSED_OF_CHECKS)?;
    let name = fields.text("name")?;
    let id = match fields.text("id")? {
        Some(id) => Some(id),
        None => fields.text("checkid")?,
    };
    let service = fields.text("serviceid")?;
    // These fields are only for people and have no effect.
    fields.text("notes")?;
    fields.take("token");
    let initial = match fields.text("status")?.as_deref() {
        None | Some("" | "critical") => CheckStatus::Critical,
        Some("passing") => CheckStatus::Passing,
        Some("warning") => CheckStatus::Warning,
        Some(other) => {
            let message = format!("{} is no status: passing, warning or critical", quoted(other));
            return Err(mistake("status", message));
        }
    };
    let given = given_kinds(&mut fields)?;
    let [(_, kind)] = <[_; 1]>::try_from(given).map_err(|given: Vec<(&str, CheckKind)>| {
        let found: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
        let found = if found.is_empty() { "none".into() } else { found.join(" and ") };
        mistake(key, format!("a check has one of script, args, http, tcp and ttl; found {found}"))
    })?;
    let interval = fields.duration("interval")?;
    let timeout = fields.duration("timeout")?;
    let ttl = fields.duration("ttl")?;
    let interval = match (&kind, ttl, interval) {
        (CheckKind::Ttl, Some(ttl), _) => ttl,
        (_, _, Some(interval)) => interval,
        _ => return Err(mistake(key, "interval is missing: how often the check runs, as in \"10s\"")),
    };
    if interval.is_zero() {
        return Err(mistake("interval", "interval must be more than 0"));
    }
    let default = if matches!(kind, CheckKind::Command { .. }) { COMMAND_TIMEOUT } else { NETWORK_TIMEOUT };
    let after = |value: Option<i64>| u32::try_from(value.unwrap_or(1)).unwrap_or(1).max(1);
    let good_after = after(fields.number("successbeforepassing")?);
    let critical_after = after(fields.number("failuresbeforecritical")?);
    let withdraw_after = fields.duration("deregistercriticalserviceafter")?;
    fields.finish("check")?;
    let service_id = of.or(service.as_deref());
    let own_name = if service_id.is_none() { name.as_deref() } else { None };
    let id =
        check_id(id.as_deref().or(own_name), service_id, number).map_err(|message| mistake(key, message))?;
    let name = name.unwrap_or_else(|| id.as_str().to_owned());
    let check = CheckDefinition {
        id,
        name,
        kind,
        interval,
        timeout: timeout.filter(|t| !t.is_zero()).unwrap_or(default),
        initial,
        good_after,
        critical_after,
        withdraw_after: withdraw_after.filter(|t| !t.is_zero()),
    };
    Ok((service, check))
}

/// Returns all kinds of check that the fields define; exactly one is valid.
fn given_kinds(fields: &mut Fields) -> Result<Vec<(&'static str, CheckKind)>, Mistake> {
    let mut found = Vec::new();
    // As in Consul, an empty text is as good as none. A shell would accept it, and the check always pass.
    if let Some(script) = fields.text("script")?.filter(|script| !script.trim().is_empty()) {
        let arguments = vec!["/bin/sh".into(), "-c".into(), script];
        found.push(("script", CheckKind::Command { arguments }));
    }
    for name in ["args", "scriptargs"] {
        let arguments = fields.texts(name)?;
        if let Some(program) = arguments.first() {
            // A name without `/` is looked up on `PATH` when the check runs.
            if program.is_empty() || program.contains('/') && !program.starts_with('/') {
                let message = format!(
                    "the program {} must be an absolute path, or a name without / that is on PATH",
                    quoted(program)
                );
                return Err(mistake("args", message));
            }
            found.push(("args", CheckKind::Command { arguments }));
        }
    }
    let method = fields.text("method")?.filter(|m| !m.is_empty()).unwrap_or_else(|| "GET".into());
    let headers = fields.headers("header")?;
    let body = fields.text("body")?.unwrap_or_default();
    let skip_verify = fields.flag("tlsskipverify")?;
    if let Some(url) = fields.text("http")? {
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(mistake("http", format!("{} does not begin with http:// or https://", quoted(&url))));
        }
        found.push(("http", CheckKind::Http { url, method, headers, body, skip_verify }));
    }
    if let Some(address) = fields.text("tcp")? {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            return Err(mistake("tcp", format!("{} is not of the form host:port", quoted(&address))));
        }
        found.push(("tcp", CheckKind::Tcp { address }));
    }
    if fields.has("ttl") {
        found.push(("ttl", CheckKind::Ttl));
    }
    Ok(found)
}

fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "")
}

/// The fields of an object, by their names without case and underscores. Reading a field removes
/// it.
struct Fields(BTreeMap<String, (String, Value)>);

impl Fields {
    fn of(key: &str, value: &Value) -> Result<Self, Mistake> {
        let Value::Object(map) = value else {
            return Err(mistake(key, format!("{key} must be an object")));
        };
        let mut fields = BTreeMap::new();
        for (name, value) in map {
            if let Some((other, _)) = fields.insert(folded(name), (name.clone(), value.clone())) {
                return Err(mistake(
                    name,
                    format!("{key}: {other} and {name} are one field; give one of them"),
                ));
            }
        }
        Ok(Self(fields))
    }

    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(_, value)| !is_empty(value))
    }

    /// Removes a field. Returns its name as written in the file, and its value.
    fn take(&mut self, name: &str) -> Option<(String, Value)> {
        self.0.remove(name)
    }

    /// Refuses the given fields if one of them is present and not empty. The default namespace and
    /// partition are accepted, because they have no effect.
    fn refuse(&mut self, names: &[(&str, &str)]) -> Result<(), Mistake> {
        for (name, instead) in names {
            if let Some((field, _)) = self.take(name).filter(|(_, v)| !is_empty(v) && v != "default") {
                return Err(unsupported(&field, instead));
            }
        }
        Ok(())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Mistake> {
        match self.take(name) {
            None | Some((_, Value::Null)) => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((field, _)) => Err(mistake(&field, format!("{field} must be text"))),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool, Mistake> {
        match self.take(name) {
            None | Some((_, Value::Null)) => Ok(false),
            Some((_, Value::Bool(flag))) => Ok(flag),
            Some((field, _)) => Err(mistake(&field, format!("{field} must be true or false"))),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<i64>, Mistake> {
        match self.take(name) {
            None | Some((_, Value::Null)) => Ok(None),
            Some((field, value)) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(mistake(&field, format!("{field} must be a whole number, without quotes"))),
            },
        }
    }

    fn texts(&mut self, name: &str) -> Result<Vec<String>, Mistake> {
        let Some((field, value)) = self.take(name) else { return Ok(Vec::new()) };
        let wrong = || mistake(&field, format!("{field} must be a list of texts"));
        match value {
            Value::Null => Ok(Vec::new()),
            Value::Array(values) => {
                values.iter().map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            _ => Err(wrong()),
        }
    }

    fn map(&mut self, name: &str) -> Result<BTreeMap<String, String>, Mistake> {
        let Some((field, value)) = self.take(name) else { return Ok(BTreeMap::new()) };
        let wrong = || mistake(&field, format!("{field} must be an object of strings; quote numbers"));
        match value {
            Value::Null => Ok(BTreeMap::new()),
            Value::Object(map) => map
                .into_iter()
                .map(|(key, value)| Ok((key, value.as_str().ok_or_else(wrong)?.to_owned())))
                .collect(),
            _ => Err(wrong()),
        }
    }

    fn headers(&mut self, name: &str) -> Result<Vec<(String, String)>, Mistake> {
        let Some((field, value)) = self.take(name) else { return Ok(Vec::new()) };
        let wrong = || mistake(&field, format!("{field} must be an object of lists of texts"));
        let Value::Object(map) = value else { return Err(wrong()) };
        let mut headers = Vec::new();
        for (name, values) in map {
            for value in values.as_array().ok_or_else(wrong)? {
                headers.push((name.clone(), value.as_str().ok_or_else(wrong)?.to_owned()));
            }
        }
        Ok(headers)
    }

    fn duration(&mut self, name: &str) -> Result<Option<Duration>, Mistake> {
        match self.take(name) {
            None | Some((_, Value::Null)) => Ok(None),
            Some((field, Value::String(text))) => match go_duration(&text) {
                Some(duration) => Ok(Some(duration)),
                None => {
                    let message = format!("{field}: {} is no duration, as in 10s or 1m30s", quoted(&text));
                    Err(mistake(&field, message))
                }
            },
            Some((field, _)) => {
                Err(mistake(&field, format!("{field} must be a text with its unit, as in \"10s\"")))
            }
        }
    }

    /// Returns an error if a field is left that was not read.
    fn finish(self, of: &str) -> Result<(), Mistake> {
        match self.0.into_values().next() {
            None => Ok(()),
            Some((field, _)) => Err(mistake(&field, format!("{field}: a {of} has no such field here"))),
        }
    }
}

fn list<'a>(key: &str, value: &'a Value) -> Result<&'a [Value], Mistake> {
    match value {
        Value::Array(values) => Ok(values),
        Value::Null => Ok(&[]),
        _ => Err(mistake(key, format!("{key} must be a list"))),
    }
}

/// Parses a duration as Go writes it: `1m30s`, `1.5h`, `100ms`, `10us` (Go's `time.ParseDuration`,
/// without signs).
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..number_end].parse().ok()?;
        rest = &rest[number_end..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit_end] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(total).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in
            [("10s", 10_000), ("1m30s", 90_000), ("100ms", 100), ("1.5s", 1_500), ("2h", 7_200_000), ("0", 0)]
        {
            assert_eq!(go_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(go_duration("10us"), Some(Duration::from_micros(10)));
        for bad in ["", "10", "s", "1x", "-1s", "1.2.3s", "1 s", "1e400s"] {
            assert_eq!(go_duration(bad), None, "{bad}");
        }
    }
}
