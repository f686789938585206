//! No file makes the reader panic, hang or take memory without bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    solo_etcd::fuzzing::file(bytes);
    solo_etcd::fuzzing::records(bytes);
});
