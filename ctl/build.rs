//! How the command is linked.

fn main() {
    // Relocations in the packed form (DT_RELR, glibc 2.36): the loader reads one page where it read forty, each time that the command
    // starts. A linker that does not know the word says so, and leaves them as they are.
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
