//! Whole-system tests: real binaries, real etcd. One binary; each module is a subject.

mod crash;
mod store_faults;
mod update;
