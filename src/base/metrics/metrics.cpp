#include "base/metrics/metrics.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text.h"

namespace hvd {
namespace {

template <size_t N>
void add_all(std::array<uint64_t, N>& to, const std::array<uint64_t, N>& from) {
  for (size_t i = 0; i < N; ++i) to[i] += from[i];
}

void add_all(Histogram& to, const Histogram& from) {
  add_all(to.counts, from.counts);
  to.sum += from.sum;
}

uint32_t clamped(uint64_t microseconds) {
  return static_cast<uint32_t>(std::min<uint64_t>(microseconds, UINT32_MAX));
}

constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t stride_of_pages() {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (sizeof(RankCounters) + page - 1) / page * page;
}

std::atomic_ref<uint64_t> layout_of(RankCounters& counters) {
  return std::atomic_ref(counters.layout);
}

}  // namespace

void Metrics::add(const Metrics& other) {
  uint64_t& steps = counters[static_cast<size_t>(Counter::kSteps)];
  const uint64_t most = std::max(steps, other.counters[static_cast<size_t>(Counter::kSteps)]);
  add_all(counters, other.counters);
  steps = most;
  add_all(done, other.done);
  add_all(failed, other.failed);
  add_all(bytes, other.bytes);
  for (size_t op = 0; op < kOpCount; ++op) add_all(latency[op], other.latency[op]);
  add_all(negotiation, other.negotiation);
  add_all(batch_bytes, other.batch_bytes);
  add_all(batch_fill, other.batch_fill);
  pending += other.pending;
  stepped_at = std::max(stepped_at, other.stepped_at);
}

void StepLog::step_ended(std::chrono::steady_clock::time_point now, const Metrics& metrics,
                         uint32_t id, uint32_t call) {
  const std::chrono::nanoseconds since_start = now.time_since_epoch();
  const uint64_t bytes = std::accumulate(metrics.bytes.begin(), metrics.bytes.end(), uint64_t{0});
  if (began.count() != 0) {
    const uint64_t took = Metrics::microseconds(since_start - began);
    steps[ended % kKept] = {.microseconds = clamped(took),
                            .waited_microseconds = clamped(waited),
                            .bytes = bytes - bytes_before,
                            .longest = longest,
                            .ended_by = id,
                            .call = call,
                            .device_microseconds = clamped(on_device)};
    total_microseconds += took;
    // The wait lies mostly in the previous step, and may be longer than this step.
    total_waited = std::min(total_waited + waited, total_microseconds);
    // Publish the step last: a reader in another process ignores a step that is being written.
    std::atomic_ref(ended).store(ended + 1, std::memory_order_release);
  }
  began = since_start;
  bytes_before = bytes;
  waited = 0;
  on_device = 0;
  longest = 0;
}

void StepLog::batch_ended(uint64_t step, std::chrono::nanoseconds took) {
  const uint64_t microseconds = Metrics::microseconds(took);
  if (step == ended) {
    on_device = std::max(on_device, microseconds);
  } else if (ended - step <= kKept) {
    uint32_t& past = steps[step % kKept].device_microseconds;
    past = std::max(past, clamped(microseconds));
  }
}

void OperationNames::set(uint32_t slot, std::string_view name) {
  if (slot >= kSlots) return;
  Name& to = names_[slot];
  to.size = static_cast<uint8_t>(std::min(name.size(), kMostText));
  std::memcpy(to.text.data(), name.data(), to.size);
}

std::string OperationNames::at(uint32_t slot) const {
  if (slot >= kSlots) return {};
  const Name& name = names_[slot];
  return {name.text.data(), std::min<size_t>(name.size, kMostText)};
}

std::optional<StepMeans> means_of(const StepLog& log) {
  const size_t count = std::min<uint64_t>(log.ended, StepLog::kWindow);
  if (count == 0) return {};
  uint64_t time = 0, waited = 0, bytes = 0;
  std::vector<uint64_t> waits;
  for (uint64_t step = log.ended - count; step < log.ended; ++step) {
    const StepLog::Step& one = log.steps[step % StepLog::kKept];
    time += one.microseconds;
    // An operation may have begun to wait before the step began.
    waited += std::min(one.waited_microseconds, one.microseconds);
    bytes += one.bytes;
    waits.push_back(one.wait_and_transfer());
  }
  const auto steps = static_cast<double>(count);
  StepMeans means{.seconds = static_cast<double>(time) * 1e-6 / steps,
                  .waited_share = static_cast<double>(waited) /
                                  static_cast<double>(std::max<uint64_t>(time, 1)),
                  .bytes = static_cast<double>(bytes) / steps,
                  .late_seconds = {}};
  if (log.longest_wait != 0) {
    std::ranges::nth_element(waits, waits.begin() + static_cast<ptrdiff_t>(count / 2));
    const uint64_t own = waits[count / 2];
    means.late_seconds =
        static_cast<double>(log.longest_wait - std::min(own, log.longest_wait)) * 1e-6;
  }
  return means;
}

Result<MetricsPages> MetricsPages::create(size_t count) {
  const size_t stride = stride_of_pages();
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // The sysctl vm.memfd_noexec may require MFD_NOEXEC_SEAL, which kernels before Linux 6.3 do not know.
  UniqueFd file(::memfd_create("horovod-metrics", kFlags | kNoExecSeal));
  if (!file) file.reset(::memfd_create("horovod-metrics", kFlags));
  if (!file) return system_error("cannot make memory for the counters of ranks", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(stride * count)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error("cannot size memory for the counters of ranks", errno);
  }
  void* memory = ::mmap(nullptr, stride * count, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return system_error("cannot map the counters of ranks", errno);
  return MetricsPages(std::move(file), stride, count, static_cast<const std::byte*>(memory));
}

MetricsPages::MetricsPages(MetricsPages&& other) noexcept
    : file_(std::move(other.file_)),
      stride_(other.stride_),
      count_(other.count_),
      memory_(std::exchange(other.memory_, nullptr)) {}

MetricsPages::~MetricsPages() {
  if (memory_ != nullptr) ::munmap(const_cast<std::byte*>(memory_), stride_ * count_);
}

std::string MetricsPages::place_of(size_t index) const {
  return cat("/proc/", ::getpid(), "/fd/", file_.get(), ":", index * stride_);
}

std::optional<RankCounters> MetricsPages::read(size_t index) const {
  std::optional<RankCounters> counters(std::in_place);
  std::memcpy(static_cast<void*>(&*counters), memory_ + index * stride_, sizeof *counters);
  if (counters->layout != kMetricsLayout) counters.reset();
  return counters;
}

// Writes one field, since another process writes the rest of the page.
void MetricsPages::set_longest_wait(size_t index, uint64_t microseconds) const {
  constexpr size_t kPlace = offsetof(RankCounters, steps) + offsetof(StepLog, longest_wait);
  [[maybe_unused]] const ssize_t size = ::pwrite(file_.get(), &microseconds, sizeof microseconds,
                                                 static_cast<off_t>(index * stride_ + kPlace));
}

Result<std::unique_ptr<MetricsPage>> MetricsPage::open(const std::string& place) {
  const size_t colon = std::min(place.rfind(':'), place.size());
  const int64_t offset =
      parse_int(std::string_view(place).substr(colon).substr(colon < place.size() ? 1 : 0))
          .value_or(-1);
  if (offset < 0) return invalid_argument(cat("'", printable(place), "' is no page"));
  const std::string path = place.substr(0, colon);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return system_error(cat("cannot open ", printable(path)), errno);
  // The seals prove that the file is an agent's memory of fixed size: after an agent's end,
  // another process may have its pid and descriptor number.
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals ||
      offset + static_cast<off_t>(stride_of_pages()) > size) {
    return invalid_argument(cat(printable(path), " is not the memory of an agent"));
  }
  // The kernel releases this lock when the process ends, also after SIGKILL.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = static_cast<off_t>(stride_of_pages());
  if (::fcntl(file.get(), F_SETLK, &lock) != 0) {
    return system_error("another process of this rank counts already", errno);
  }
  void* memory =
      ::mmap(nullptr, stride_of_pages(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), offset);
  if (memory == MAP_FAILED) return system_error(cat("cannot map ", printable(path)), errno);
  return std::unique_ptr<MetricsPage>(
      new MetricsPage(std::move(file), static_cast<RankCounters*>(memory)));
}

MetricsPage::~MetricsPage() { ::munmap(counters_, stride_of_pages()); }

RankCounters* MetricsPage::begin(int32_t rank, int32_t size) {
  layout_of(*counters_).store(0);
  counters_->metrics = {};
  counters_->steps = {};
  counters_->announced = {};
  counters_->rank = rank;
  counters_->size = size;
  layout_of(*counters_).store(kMetricsLayout);
  return counters_;
}

}  // namespace hvd
