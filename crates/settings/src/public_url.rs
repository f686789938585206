//! The address under which people reach the observer through a proxy.

use schema::names::{HostName, quoted};

/// The first parts of the observer's own paths. A public path that begins with one of them would be taken for it:
/// proxies may leave the public path in front of a request or take it away, and the observer sees only what is left.
pub const OWN_PARTS: [&str; 10] =
    ["events", "hosts", "icon.svg", "metrics", "page.css", "page.js", "rollouts", "search", "services", "v1"];

/// A public URL, in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    /// Scheme, host and port as browsers write them in the header `Origin`: without the port of the scheme.
    pub origin: String,
    /// The host as it stands in the header `Host`, without its port.
    pub host: String,
    /// The path without a slash at its end; empty for the root.
    pub path: String,
}

impl PublicUrl {
    /// Reads the setting.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let wanted = || {
            format!(
                "must be the URL of the first page, as in \"https://ops.example/fleet/\", not {}",
                quoted(url)
            )
        };
        let lower = url.to_ascii_lowercase();
        let (scheme, own_port) =
            if lower.starts_with("https://") { ("https", "443") } else { ("http", "80") };
        let rest = lower.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")).ok_or_else(wanted)?;
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) =
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
        if HostName::new(host).is_err() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(wanted());
        }
        // The path keeps its capitals.
        let path = url[url.len() - rest.len() + authority.len()..].trim_end_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        let is_segment = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_plain);
        if !path.split('/').skip(1).all(is_segment) {
            return Err(wanted());
        }
        if let Some(own) = path.split('/').nth(1).filter(|part| OWN_PARTS.contains(part)) {
            return Err(format!(
                "must not begin with a path of the observer itself, as /{own}; take another first part, as in \
                 \"https://ops.example/fleet/{own}/\""
            ));
        }
        let port = port.filter(|port| *port != own_port).map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self { origin: format!("{scheme}://{host}{port}"), host: host.into(), path: path.into() })
    }

    /// True if browsers reach the observer over TLS.
    pub fn is_encrypted(&self) -> bool {
        self.origin.starts_with("https://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_has_an_origin_a_host_and_a_path() {
        for (url, origin, host, path) in [
            ("https://ops.example", "https://ops.example", "ops.example", ""),
            ("https://ops.example/", "https://ops.example", "ops.example", ""),
            ("https://ops.example/fleet/", "https://ops.example", "ops.example", "/fleet"),
            ("HTTPS://Ops.Example:443/Fleet", "https://ops.example", "ops.example", "/Fleet"),
            (
                "https://ops.example:8443/a/b.c_d~e-f/",
                "https://ops.example:8443",
                "ops.example",
                "/a/b.c_d~e-f",
            ),
            ("http://10.0.0.1:80/x", "http://10.0.0.1", "10.0.0.1", "/x"),
        ] {
            let parts = PublicUrl { origin: origin.into(), host: host.into(), path: path.into() };
            assert_eq!(PublicUrl::parse(url), Ok(parts), "{url}");
        }
        for wrong in [
            "",
            "ops.example",
            "ftp://ops.example",
            "https://",
            "https:///fleet",
            "https://user@ops.example/",
            "https://ops.example:x/",
            "https://ops.example:99999/",
            "https://ops.example/a//b",
            "https://ops.example/../a",
            "https://ops.example/fleet?x=1",
            "https://ops.example/fleet#x",
            "https://ops.example/a b",
            "https://ops.example/\"x",
            "https://ops.example/ä",
            "https://[::1]/",
        ] {
            let error = PublicUrl::parse(wrong).expect_err(wrong);
            assert!(error.contains("https://ops.example/fleet/"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_public_path_cannot_be_taken_for_a_path_of_the_observer() {
        for part in OWN_PARTS {
            for rest in ["", "/", "/x/"] {
                let url = format!("https://ops.example/{part}{rest}");
                let error = PublicUrl::parse(&url).expect_err(&url);
                assert!(error.contains(&format!("as /{part};")), "{url}: {error}");
            }
            for free in [format!("fleet/{part}"), format!("{part}-of-x"), part.to_uppercase()] {
                let url = format!("https://ops.example/{free}/");
                assert!(PublicUrl::parse(&url).is_ok(), "{url}");
            }
        }
    }
}
