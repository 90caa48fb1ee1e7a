// Counts the store requests of a rendezvous.
#include "collectives/checks.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// A store with exchanges that counts its requests.
class CountingStore final : public collectives::KeyValueStore {
 public:
  Status set(std::string_view key, ByteView value) override {
    ++requests;
    return store_.set(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    ++requests;
    return store_.get(key, deadline);
  }
  Result<std::vector<Bytes>> exchange(std::string_view name, int32_t party, int32_t count,
                                      ByteView record, const std::vector<int32_t>& wanted,
                                      Deadline deadline) override {
    ++requests;
    return store_.exchange(name, party, count, record, wanted, deadline);
  }
  std::atomic<int> requests = 0;

 private:
  MemoryStore store_;
};

}  // namespace

TEST_CASE("a rank asks the store twice, whatever the number of ranks") {
  for (const size_t ranks : {size_t{8}, size_t{96}}) {
    std::vector<int> hosts;
    for (size_t rank = 0; rank < ranks; ++rank) hosts.push_back(static_cast<int>(rank / 8));
    World world(hosts);
    CountingStore store;
    require_all_ok(run_on(world, store, [](Rank&) -> Status { return {}; }));
    CHECK(store.requests == static_cast<int>(2 * ranks));
  }
}

TEST_CASE("where the ranks of a machine are known to be of one site, once is enough") {
  World world({0, 0, 1, 1, 1});
  world.site = "agent:@x";
  CountingStore store;
  require_all_ok(run_on(world, store, [](Rank& rank) -> Status {
    CHECK(rank.mesh().hosts() == std::vector<int32_t>{0, 0, 1, 1, 1});
    return {};
  }));
  CHECK(store.requests == 5);
}

TEST_CASE("where each rank is alone on its host, once is enough") {
  World world({0, 1, 2, 3});
  CountingStore store;
  require_all_ok(run_on(world, store, [](Rank&) -> Status { return {}; }));
  CHECK(store.requests == 4);
}
