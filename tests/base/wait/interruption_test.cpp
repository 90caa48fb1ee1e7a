#include "base/wait/interruption.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <thread>
#include <vector>

namespace hvd {
namespace {

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

TEST_CASE("an interruption calls back once and stays readable") {
  Interruption interruption;
  std::vector<std::string> causes;
  const auto note = [&](const Status& why) { causes.push_back(why.message()); };
  const Interruption::Watch watch(&interruption, note);
  CHECK_FALSE(is_readable(interruption.fd()));
  interruption.interrupt(aborted("rank 1 is lost"));
  interruption.interrupt(aborted("rank 2 is lost"));
  CHECK(causes == std::vector<std::string>{"rank 1 is lost"});
  CHECK(is_readable(interruption.fd()));
  SUBCASE("a watch that comes later learns of it at once") {
    const Interruption::Watch late(&interruption, note);
    CHECK(causes.size() == 2);
  }
}

TEST_CASE("a watch that has ended is not called") {
  Interruption interruption;
  int calls = 0;
  {
    const Interruption::Watch watch(&interruption, [&](const Status&) { ++calls; });
  }
  const Interruption::Watch nothing(nullptr, [&](const Status&) { ++calls; });
  interruption.interrupt(aborted("too late"));
  CHECK(calls == 0);
}

TEST_CASE("an interruption ends the wait of another thread") {
  Interruption interruption;
  std::thread thread([&] { interruption.interrupt(aborted("now")); });
  pollfd entry{interruption.fd(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 20'000) == 1);
  thread.join();
}

}  // namespace hvd
