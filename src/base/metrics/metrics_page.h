// The counters of a host's ranks, in memory that the ranks write and another process reads. The reader
// needs no reply, so it can read the counters of a rank that hangs, is stopped or has ended. A rank
// opens the memory as /proc/PID/fd/NUMBER of the agent, not as an inherited descriptor: programs
// between the agent and the rank, for example Python's subprocess module, close inherited descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/metrics/metrics.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

// Identifies the layout of a page: "HVDM", a version, and the size. A reader ignores a page of another layout.
constexpr uint64_t kMetricsLayout =
    (uint64_t{0x4856444d} << 32) | (uint64_t{3} << 16) | sizeof(RankCounters);

// The pages of all ranks of this host. The agent owns this object. For one thread.
class MetricsPages {
 public:
  static Result<MetricsPages> create(size_t count);
  MetricsPages(MetricsPages&& other) noexcept;
  MetricsPages& operator=(MetricsPages&&) = delete;
  ~MetricsPages();

  // Returns the value of HOROVOD_METRICS_PAGE for one rank: "/proc/PID/fd/NUMBER:OFFSET".
  std::string place_of(size_t index) const;
  // Returns nullopt until a process has opened the page.
  std::optional<RankCounters> read(size_t index) const;
  // Sets StepLog::longest_wait of a rank.
  void set_longest_wait(size_t index, uint64_t microseconds) const;

 private:
  MetricsPages(UniqueFd file, size_t stride, size_t count, const std::byte* memory)
      : file_(std::move(file)), stride_(stride), count_(count), memory_(memory) {}

  UniqueFd file_;
  size_t stride_;
  size_t count_;
  const std::byte* memory_;
};

// The page of this process's rank; the process is the rank or one of its children. Lives as long as the process.
class MetricsPage {
 public:
  // Returns an error if the memory no longer exists or is not a page, or if another process uses the page.
  static Result<std::unique_ptr<MetricsPage>> open(const std::string& place);
  MetricsPage(const MetricsPage&) = delete;
  ~MetricsPage();

  // Sets all counters to zero when this rank starts again.
  RankCounters* begin(int32_t rank, int32_t size);

 private:
  MetricsPage(UniqueFd file, RankCounters* counters)
      : file_(std::move(file)), counters_(counters) {}

  UniqueFd file_;  // holds the lock
  RankCounters* counters_;
};

}  // namespace hvd
