//! The catalog: hosts publish services, and other hosts find them, wait for them and follow them.

mod circular;
mod depend;
mod down;
mod files;
mod forwarders;
mod guard;
mod http;
mod maintenance;
mod names;
mod partition;
mod publish;
mod resolvers;
mod verbs;
