#include "launcher/agent/ranks/rank_program.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

const Environment kGivenToRank = {{"RANK", "1"}, {"MASTER_PORT", "4000"}};
const Environment kOtherPort = {{"RANK", "1"}, {"MASTER_PORT", "29500"}};
constexpr uint8_t kJaxLibrary = 3;

RankSigns signs_of(const RankProgram& program) {
  RankSigns signs;
  program.add_to(signs);
  return signs;
}

}  // namespace

TEST_CASE("a program is alone from the first look at PyTorch without a connection until the last") {
  RankProgram program;
  CHECK(signs_of(program).changes.size() == 1);  // unknown
  const Clock::time_point begin{};
  const auto look = [&](int second, uint8_t library, bool is_connected) {
    const LibraryUsers::Program seen{
        .pid = 7, .library = library, .is_connected = is_connected, .variables = kOtherPort};
    program.see(seen, kGivenToRank, begin + seconds(second));
    return signs_of(program);
  };
  CHECK(look(0, 0, false).alone_milliseconds == 0);
  CHECK(look(60, LibraryUsers::kTorch, false).alone_milliseconds == 0);
  RankSigns signs = look(65, LibraryUsers::kTorch, false);
  CHECK((signs.alone_milliseconds == 5000 && signs.has_torch == 1));
  REQUIRE(signs.changes.size() == 1);
  CHECK(signs.changes[0].found == "29500");
  CHECK(look(70, LibraryUsers::kTorch, true).alone_milliseconds == 0);
  CHECK(look(75, LibraryUsers::kTorch, false).alone_milliseconds == 0);
  CHECK(look(76, LibraryUsers::kTorch, false).alone_milliseconds == 1000);
  CHECK(look(80, kJaxLibrary, false).has_torch == 0);
}

TEST_CASE("a program with other variables may search until it is connected") {
  RankProgram program;
  CHECK_FALSE(program.may_search());
  LibraryUsers::Program seen{.pid = 7, .variables = kOtherPort};
  const auto may_search = [&] {
    program.see(seen, kGivenToRank, {});
    return program.may_search();
  };
  CHECK(may_search());  // it may load PyTorch later
  seen.library = LibraryUsers::kTorch;
  CHECK(may_search());
  seen.is_connected = true;
  CHECK_FALSE(may_search());
  seen = {.pid = 7, .library = kJaxLibrary, .variables = kOtherPort};
  CHECK_FALSE(may_search());
  seen = {.pid = 7, .library = LibraryUsers::kTorch, .variables = kGivenToRank};
  CHECK_FALSE(may_search());
  seen.variables.reset();
  CHECK_FALSE(may_search());
}

}  // namespace hvd::launcher
