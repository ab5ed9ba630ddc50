//! The store in memory under the suite.

use peerage_store::memory::MemoryStore;
use peerage_store::testing::conformance::Fixture;

async fn fixture() -> Fixture {
    Fixture::new(MemoryStore::new())
}

peerage_store::conformance!(fixture);
