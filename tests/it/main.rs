//! Whole-system tests: real binaries, real etcd. One binary; each module is a subject.

mod architecture;
mod bootstrap;
mod catalog;
mod changed;
mod claims;
mod contract;
mod crash;
mod demo;
mod dev;
mod discovery;
mod machine;
mod modules;
mod network;
mod old_clients;
mod packages;
mod puppet;
mod quiet;
mod restore;
mod secure;
mod service_manager;
mod settings_trust;
mod steps;
mod store_api;
mod store_faults;
mod update;
