//! What reading a request costs. A request without `%` and query takes under 300 ns and allocates nothing.

use divan::{AllocProfiler, Bencher, black_box};
use peerage_core::RequestInfo;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Requests that no byte is allocated for.
const PLAIN: [&str; 4] = [
    "/api/v1/namespaces/kube-system/pods/kube-dns-0/log",
    "/apis/apps/v1/namespaces/default/deployments/web",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1",
    "/healthz",
];

/// Requests that need decoding.
const DECODED: [&str; 3] = [
    "/api/v1/pods?watch=1&resourceVersion=1234&allowWatchBookmarks=true",
    "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dweb&limit=500",
    "/api/v1/namespaces/default/services/http:web:80/proxy/a%20b",
];

#[divan::bench(args = PLAIN)]
fn plain(bencher: Bencher<'_, '_>, target: &str) {
    bencher.bench_local(|| RequestInfo::parse(black_box("GET"), black_box(target)));
}

#[divan::bench(args = DECODED)]
fn decoded(bencher: Bencher<'_, '_>, target: &str) {
    bencher.bench_local(|| RequestInfo::parse(black_box("GET"), black_box(target)));
}
