//! The options of every verb. Those that name the store are hidden from the help of verbs and from
//! completion of a verb's own options; `orchestrate help store` shows them.

use crate::output::Format;
use clap::Args;
use std::path::PathBuf;

/// Options of every verb.
#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct GlobalOptions {
    /// Host of the store [default: 127.0.0.1]
    #[arg(long = "host", value_name = "HOST", global = true, hide = true)]
    pub(crate) store_host: Option<String>,
    /// Client port of the store [default: 2379]
    #[arg(long = "port", value_name = "PORT", global = true, hide = true)]
    pub(crate) store_port: Option<u16>,
    /// Token of the store at the public etcd discovery service, which no longer exists; use --discovery-url
    #[arg(long = "discovery_token", value_name = "TOKEN", global = true, hide = true)]
    pub(crate) discovery_token: Option<String>,
    /// Endpoints of the store, separated by commas [env: ORCHESTRATE_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long, value_name = "LIST", global = true, hide = true, group = "source")]
    pub(crate) endpoints: Option<String>,
    /// File with one endpoint per line
    #[arg(long, value_name = "FILE", global = true, hide = true, group = "source")]
    pub(crate) endpoints_file: Option<PathBuf>,
    /// Domain whose SRV records name the endpoints
    #[arg(long, value_name = "DOMAIN", global = true, hide = true, group = "source")]
    pub(crate) discovery_srv: Option<String>,
    /// URL of an etcd discovery service, with the token
    #[arg(long, value_name = "URL", global = true, hide = true, group = "source")]
    pub(crate) discovery_url: Option<String>,
    /// Certificates of the authorities that sign the store's certificate [env: ORCHESTRATE_CACERT,
    /// ETCDCTL_CACERT]
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    pub(crate) cacert: Option<PathBuf>,
    /// Client certificate [env: ORCHESTRATE_CERT, ETCDCTL_CERT]
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate [env: ORCHESTRATE_KEY, ETCDCTL_KEY]
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    pub(crate) key: Option<PathBuf>,
    /// User, or user and password [env: ORCHESTRATE_USER, ETCDCTL_USER]
    #[arg(long, value_name = "NAME[:PASSWORD]", global = true, hide = true)]
    pub(crate) user: Option<String>,
    /// Password; safer in the environment [env: ORCHESTRATE_PASSWORD, ETCDCTL_PASSWORD]
    #[arg(long, value_name = "PASSWORD", global = true, hide = true)]
    pub(crate) password: Option<String>,
    /// Prefix of every key [env: ORCHESTRATE_NAMESPACE]
    #[arg(long, value_name = "PREFIX", global = true, hide = true)]
    pub(crate) namespace: Option<String>,
    /// Time limit of the whole command [default: 10s] [env: ORCHESTRATE_TIMEOUT]
    #[arg(long, alias = "command-timeout", value_name = "DURATION", global = true, hide = true)]
    pub(crate) timeout: Option<String>,
    /// Time limit of one connection attempt [default: 2s] [env: ORCHESTRATE_DIAL_TIMEOUT]
    #[arg(long, value_name = "DURATION", global = true, hide = true)]
    pub(crate) dial_timeout: Option<String>,
    /// Directory or object store of a recording [env: ORCHESTRATE_RECORDING]
    #[arg(long, value_name = "DIRECTORY|URL", global = true, hide = true)]
    pub(crate) recording: Option<String>,
    /// Moment of the past: a revision, a time, a duration before now, or lineage/epoch/branch/revision
    #[arg(long, value_name = "MOMENT", global = true, hide = true)]
    pub(crate) at: Option<String>,
    /// Time that counts as the present [default: when the revision was recorded]
    #[arg(long, value_name = "TIME", global = true, hide = true, requires = "at")]
    pub(crate) now: Option<String>,
    /// Server of S3, for recordings and bundles [env: ORCHESTRATE_S3_ENDPOINT]
    #[arg(long, value_name = "URL", global = true, hide = true)]
    pub(crate) s3_endpoint: Option<String>,
    /// Region of S3 [default: us-east-1] [env: ORCHESTRATE_S3_REGION]
    #[arg(long, value_name = "NAME", global = true, hide = true)]
    pub(crate) s3_region: Option<String>,
    /// File with the access key of S3: its id on the first line, its secret on the second, the session token of a
    /// temporary key on the third [env: ORCHESTRATE_S3_CREDENTIALS]
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    pub(crate) s3_credentials: Option<PathBuf>,
    /// Authorities that may have signed the certificate of the server of S3, as PEM [env: ORCHESTRATE_S3_CACERT]
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    pub(crate) s3_cacert: Option<PathBuf>,
    /// Who acts, for the events of verbs that write [default: your user name] [env: ORCHESTRATE_BY]
    #[arg(long, value_name = "NAME", global = true, hide = true)]
    pub(crate) by: Option<String>,
    /// Lines and tables for people and scripts, or one JSON value
    #[arg(
        short = 'o',
        long,
        visible_short_alias = 'w',
        alias = "write-out",
        value_name = "FORMAT",
        value_enum,
        default_value = "table",
        help_heading = None::<&'static str>,
        global = true
    )]
    pub(crate) output: Format,
}

impl std::fmt::Debug for GlobalOptions {
    /// Shows no field, because one of them is a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GlobalOptions").finish_non_exhaustive()
    }
}
