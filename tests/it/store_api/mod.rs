//! The embedded store beside a real etcd: one battery for both, random histories on both, and etcd's own
//! client on the embedded one.

mod differential;
