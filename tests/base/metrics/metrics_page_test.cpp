#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/metrics/metrics.h"
#include "base/metrics/metrics_text.h"
#include "base/process/spawn.h"
#include "base/text.h"

namespace hvd {
namespace {

// Starts a process that takes the page, counts `steps` twice and waits to be killed. Returns once
// the process has counted; returns nothing if the page was refused.
std::optional<pid_t> count_in_child(const std::string& place, uint64_t passes) {
  auto ready = open_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto page = MetricsPage::open(place);
    if (!page.ok()) ::_exit(1);
    Metrics* metrics = &(*page)->begin(3, 8)->metrics;
    metrics->count(Counter::kPasses, passes);
    [[maybe_unused]] const ssize_t size = ::write(ready->write.get(), "x", 1);
    for (;;) ::pause();
  }
  ready->write.reset();
  char byte = 0;
  if (::read(ready->read.get(), &byte, 1) == 1) return pid;
  ::waitpid(pid, nullptr, 0);
  return {};
}

void kill_child(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

uint64_t passes_of(const RankCounters& counters) {
  return counters.metrics.counters[static_cast<size_t>(Counter::kPasses)];
}

}  // namespace

TEST_CASE("the counters of another process are read while it runs, is stopped and has ended") {
  const auto pages = MetricsPages::create(2);
  REQUIRE(pages.ok());
  CHECK(!pages->read(1));
  const auto child = count_in_child(pages->place_of(1), 7);
  REQUIRE(child);
  ::kill(*child, SIGSTOP);
  const auto counters = pages->read(1);
  REQUIRE(counters);
  CHECK(passes_of(*counters) == 7);
  CHECK((counters->rank == 3 && counters->size == 8));
  CHECK(!pages->read(0));
  CHECK_MESSAGE(!count_in_child(pages->place_of(1), 1), "two processes count in one page");
  kill_child(*child);
  CHECK(passes_of(*pages->read(1)) == 7);
  const auto next = count_in_child(pages->place_of(1), 2);
  REQUIRE(next);
  CHECK(passes_of(*pages->read(1)) == 2);
  kill_child(*next);
}

TEST_CASE("numbers have no noise of binary fractions") {
  CHECK(number_text(0.1 + 0.2) == "0.3");
  CHECK(number_text(3903573 * 1e-6) == "3.903573");
  CHECK(number_text(134217728) == "134217728");
  CHECK(number_text(0) == "0");
}

TEST_CASE("a place that is no page is refused, and nothing is written there") {
  const auto pages = MetricsPages::create(1);
  REQUIRE(pages.ok());
  const std::string place = pages->place_of(0);
  const std::string path = place.substr(0, place.rfind(':'));
  char name[] = "/tmp/hvd_page_XXXXXX";
  const UniqueFd file(::mkstemp(name));
  REQUIRE(::ftruncate(file.get(), 1 << 20) == 0);
  const std::string other = cat("/proc/", ::getpid(), "/fd/", file.get(), ":0");
  for (const std::string& wrong :
       {std::string(), path, path + ":-4096", path + ":4096", path + ":x",
        std::string("/no/such:0"), cat(name, ":0"), other}) {
    CHECK_MESSAGE(!MetricsPage::open(wrong).ok(), wrong);
  }
  CHECK(::lseek(file.get(), 0, SEEK_DATA) < 0);
  ::unlink(name);
}

TEST_CASE("the sum of ranks has the training steps of the one with the most") {
  Metrics a, b;
  for (int i = 0; i < 3; ++i)
    a.stepped(std::chrono::steady_clock::time_point(std::chrono::seconds(9)));
  b.stepped(std::chrono::steady_clock::time_point(std::chrono::seconds(5)));
  for (Metrics* metrics : {&a, &b}) {
    metrics->finished(HVD_ALLREDUCE, true, 100, std::chrono::microseconds(5));
    metrics->agreed(std::chrono::microseconds(4));
    metrics->batch(2, 1000, 4000);
    metrics->pending = 2;
  }
  Metrics sum = a;
  sum.add(b);
  CHECK(sum.counters[static_cast<size_t>(Counter::kSteps)] == 4);
  CHECK(sum.stepped_at == 9'000'000'000);
  CHECK(sum.counters[static_cast<size_t>(Counter::kBatchTensors)] == 4);
  CHECK((sum.done[HVD_ALLREDUCE] == 2 && sum.bytes[HVD_ALLREDUCE] == 200));
  CHECK((sum.latency[HVD_ALLREDUCE].sum == 10 && sum.negotiation.sum == 8));
  CHECK((sum.batch_bytes.sum == 2000 && sum.pending == 4));
}

}  // namespace hvd
