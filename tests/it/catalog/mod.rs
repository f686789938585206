//! The catalog: hosts publish, others find, wait and follow.

mod circular;
mod depend;
mod down;
mod files;
mod guard;
mod http;
mod names;
mod partition;
mod publish;
mod resolvers;
mod verbs;
