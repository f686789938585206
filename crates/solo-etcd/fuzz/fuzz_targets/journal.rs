//! Checks that no file makes the reader panic, hang or allocate unbounded memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    solo_etcd::fuzzing::file(bytes);
    solo_etcd::fuzzing::records(bytes);
});
