// Repeated starts and shutdowns in one process: a runtime releases all its resources.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/rank_checks.h"

using hvd::Status;
using hvd::test::Links;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Work;

namespace {

size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    // "from-to rwxs ...": the last permission is s for shared memory.
    count += line.compare(line.find(' ') + 4, 1, "s") == 0 ? 1 : 0;
  }
  return count;
}

// This process's resources. Under a sanitizer, which has its own heap, heap_bytes stays constant;
// the sanitizer finds leaks itself.
struct Holdings {
  size_t descriptors = entries_of("/proc/self/fd");
  size_t threads = entries_of("/proc/self/task");
  size_t shared_memory = shared_mappings();
  size_t heap_bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
};

void live(RanksOptions& options, uint32_t epoch) {
  options.epoch = epoch;
  Ranks ranks(2, options);
  hvd::test::require_started(ranks);
  ranks.each([&](int rank) {
    CHECK(Work(HVD_ALLREDUCE, "x", std::vector<float>{1}, HVD_FLOAT32).run(ranks[rank]).ok());
  });
}

uint32_t cycles() {
  const char* count = std::getenv("HVD_CYCLES");
  return static_cast<uint32_t>(count != nullptr ? std::atoi(count) : HVD_TEST_CYCLES);
}

void check_cycles(Links links, uint32_t cycles) {
  RanksOptions options;
  options.links = links;
  constexpr uint32_t kWarmUp = 10;  // objects that live until the process ends
  for (uint32_t i = 0; i < kWarmUp; ++i) live(options, i);
  const Holdings before;
  for (uint32_t i = 0; i < cycles; ++i) live(options, kWarmUp + i);
  const Holdings after;
  CHECK(after.descriptors <= before.descriptors);
  CHECK(after.threads <= before.threads);
  CHECK(after.shared_memory <= before.shared_memory);
  // Up to 20 KiB of freed blocks in a thread's allocator cache count as used.
  const size_t grown = after.heap_bytes - std::min(before.heap_bytes, after.heap_bytes);
  CHECK(grown <= 64 * 1024);
}

}  // namespace

TEST_CASE("starting and ending again and again leaves no descriptors, threads or memory") {
  check_cycles(Links::kMemory, cycles());
}

TEST_CASE("starting and ending again and again over the built-in links leaves nothing either") {
  if (!hvd::test::has_builtin_links()) return;
  check_cycles(Links::kBuiltin, cycles() / 5);
}
