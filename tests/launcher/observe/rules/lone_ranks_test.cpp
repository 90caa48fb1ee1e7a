#include "launcher/observe/rules/lone_ranks.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "tests/launcher/hosts/running_hosts.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

// Four ranks that have loaded PyTorch. Rank 3 has another MASTER_PORT, is alone and does not work.
class Search {
 public:
  Search() {
    for (int rank = 0; rank < 4; ++rank) {
      hosts_.rank(rank).set_changes({});
      signs_[rank] = {.rank = rank, .main_microseconds = 1'000'000, .has_torch = 1};
    }
    hosts_.rank(3).set_changes({{"MASTER_PORT", "4000", "29500"}});
  }

  // Looks each two seconds for this time. Returns whether a look found ranks that cannot meet.
  bool look_for(seconds time, uint64_t worked_microseconds = 0) {
    bool is_found = false;
    for (const auto end = now_ + time; now_ < end;) {
      now_ += seconds(2);
      if (signs_.contains(3)) {
        signs_[3].main_microseconds += worked_microseconds;
        if (is_alone_) signs_[3].alone_milliseconds += 2000;
      }
      is_found |= lone_.look(signs_, hosts_, now_);
    }
    return is_found;
  }
  void connect() {
    is_alone_ = false;
    signs_[3].alone_milliseconds = 0;
  }
  // Places of ranks 0 and 3, which wait in these operations; empty: without a Python stack.
  bool may_explain(const char* first, const char* last) const {
    HangRule::Places places;
    for (const auto& [rank, operation] : {std::pair(0, first), std::pair(3, last)}) {
      const bool is_known = *operation != '\0';
      places[rank] = {.rank = rank,
                      .library = is_known ? "torch.distributed (gloo)" : "",
                      .operation = operation};
    }
    return lone_.may_explain(places, hosts_);
  }
  RankSigns& signs(int rank) { return signs_[rank]; }
  void end(int rank) { signs_.erase(rank); }
  RunningHosts& hosts() { return hosts_; }

 private:
  RunningHosts hosts_;
  HangRule::Signs signs_;
  LoneRanks lone_;
  LoneRanks::Time now_{};
  bool is_alone_ = true;
};

}  // namespace

TEST_CASE("a rank with another port that waits alone for ten seconds does not meet the others") {
  Search search;
  CHECK_FALSE(search.look_for(seconds(8)));
  CHECK(search.look_for(seconds(4)));
}

TEST_CASE("a rank may take long before it waits, and long until it is alone") {
  Search search;
  SUBCASE("it works") {
    CHECK_FALSE(search.look_for(seconds(60), 1'000'000));
    CHECK_FALSE(search.look_for(seconds(8)));
  }
  SUBCASE("it has no Python") {
    search.signs(3).main_microseconds = 0;
    CHECK_FALSE(search.look_for(seconds(60)));
    search.signs(3).main_microseconds = 1;
    CHECK_FALSE(search.look_for(seconds(8)));
  }
  SUBCASE("the agent has not looked for a time") {
    CHECK_FALSE(search.look_for(seconds(4)));
    search.connect();
    CHECK_FALSE(search.look_for(seconds(60)));
    search.signs(3).alone_milliseconds = 9000;
    CHECK_FALSE(search.look_for(seconds(60)));
    search.signs(3).alone_milliseconds = 10000;
  }
  CHECK(search.look_for(seconds(4)));
}

TEST_CASE("ranks that may meet are not alone") {
  Search search;
  SUBCASE("it is connected") { search.connect(); }
  SUBCASE("the variables are the launcher's") { search.hosts().rank(3).set_changes({}); }
  SUBCASE("the variables are unknown") { search.hosts().rank(3).set_changes({VariableChange{}}); }
  SUBCASE("a script has changed all ranks") {
    for (int rank = 0; rank < 4; ++rank)
      search.hosts().rank(rank).set_changes({{"MASTER_PORT", "4000", "29500"}});
  }
  SUBCASE("another rank has not loaded PyTorch") { search.signs(0).has_torch = 0; }
  SUBCASE("another rank has ended") { search.end(0); }
  CHECK_FALSE(search.look_for(seconds(60)));
}

TEST_CASE("changed variables explain a hang of ranks that have not met") {
  Search search;
  CHECK_FALSE(search.may_explain("init_process_group", "init_process_group"));  // before a look
  search.look_for(seconds(4));
  CHECK(search.may_explain("init_process_group", "init_process_group"));
  CHECK(search.may_explain("init_process_group", "all_reduce"));
  CHECK(search.may_explain("", ""));
  CHECK(search.may_explain("init_process_group", ""));
  CHECK_FALSE(search.may_explain("all_reduce", "all_reduce"));
  CHECK_FALSE(search.may_explain("all_reduce", ""));
  search.connect();
  search.look_for(seconds(4));
  CHECK(search.may_explain("init_process_group", "init_process_group"));
  CHECK_FALSE(search.may_explain("", ""));
}

}  // namespace hvd::launcher
