//! The embedded store compared with a real etcd: the same checks on both, random histories on both,
//! etcd's own command on the embedded store, and faults of its files and process.

mod battery;
mod client;
mod differential;
mod durability;

use tests::etcd::Etcd;
use tests::raw::Raw;
use tests::solo::Solo;

/// Runs a check on a real etcd and on the embedded store, each of them empty.
fn on_both(check: impl AsyncFn(Raw)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (etcd, solo) = (Etcd::single_real(), Solo::on_disk());
    for endpoint in [etcd.endpoint(0), solo.endpoint()] {
        // The client must be created inside a runtime.
        runtime.block_on(async { check(Raw::connect(&endpoint)).await });
    }
}
