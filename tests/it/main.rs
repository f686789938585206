//! Whole-system tests: real binaries, real etcd. One binary; each module is a subject.

mod claims;
mod crash;
mod steps;
mod store_faults;
mod update;
