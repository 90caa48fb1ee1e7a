// The requests to the board that a rendezvous costs.
#include "collectives/checks.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// A board with exchanges of its own, which counts what it is asked.
class CountingBoard final : public collectives::Board {
 public:
  Status set(std::string_view key, ByteView value) override {
    ++requests;
    return board_.set(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    ++requests;
    return board_.get(key, deadline);
  }
  Result<std::vector<Bytes>> exchange(std::string_view name, int32_t party, int32_t count,
                                      ByteView record, const std::vector<int32_t>& wanted,
                                      Deadline deadline) override {
    ++requests;
    return board_.exchange(name, party, count, record, wanted, deadline);
  }
  std::atomic<int> requests = 0;

 private:
  MemoryBoard board_;
};

}  // namespace

TEST_CASE("a rank asks the board twice, whatever the number of ranks") {
  for (const size_t ranks : {size_t{8}, size_t{96}}) {
    std::vector<int> hosts;
    for (size_t rank = 0; rank < ranks; ++rank) hosts.push_back(static_cast<int>(rank / 8));
    World world(hosts);
    CountingBoard board;
    require_all_ok(run_on(world, board, [](Rank&) -> Status { return {}; }));
    CHECK(board.requests == static_cast<int>(2 * ranks));
  }
}

TEST_CASE("where the ranks of a machine are known to be of one site, once is enough") {
  World world({0, 0, 1, 1, 1});
  world.site = "agent:@x";
  CountingBoard board;
  require_all_ok(run_on(world, board, [](Rank& rank) -> Status {
    CHECK(rank.mesh().hosts() == std::vector<int32_t>{0, 0, 1, 1, 1});
    return {};
  }));
  CHECK(board.requests == 5);
}

TEST_CASE("where each rank is alone on its host, once is enough") {
  World world({0, 1, 2, 3});
  CountingBoard board;
  require_all_ok(run_on(world, board, [](Rank&) -> Status { return {}; }));
  CHECK(board.requests == 4);
}
