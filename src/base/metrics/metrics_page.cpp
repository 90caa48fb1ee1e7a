#include "base/metrics/metrics_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace hvd {
namespace {

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
