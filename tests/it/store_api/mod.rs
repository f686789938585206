//! The embedded store beside a real etcd: one battery for both, random histories on both, etcd's own
//! command on the embedded one, and what happens to its files.

mod battery;
mod client;
mod differential;
mod durability;

use tests::etcd::Etcd;
use tests::raw::Raw;
use tests::solo::Solo;

/// Runs a check on a real etcd and on the embedded store, each empty.
fn on_both(check: impl AsyncFn(Raw)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (etcd, solo) = (Etcd::single_real(), Solo::on_disk());
    for endpoint in [etcd.endpoint(0), solo.endpoint()] {
        // The client of a test wants to be inside of a runtime when it is made.
        runtime.block_on(async { check(Raw::connect(&endpoint)).await });
    }
}
