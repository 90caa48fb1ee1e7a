#include "runtime/telemetry/trace_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/files/own_file.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

struct [[gnu::packed]] TwoBytes {
  uint16_t value;
};

int64_t epoch_micros() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

TraceFile::TraceFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {
  page_.fill(' ');
  page_[0] = '[';
  used_ = written_ = 1;
}

Result<TraceFile> TraceFile::create(const std::string& path) {
  // Do not truncate at the opening: an empty file is not valid JSON.
  Result<UniqueFd> opened = open_own_file(path, O_RDWR, "the timeline ");
  if (!opened.ok()) return opened.status();
  UniqueFd fd = *std::move(opened);
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return invalid_argument(cat("cannot write the timeline ", path, ": it is not a regular file"));
  }
  TraceFile file(std::move(fd), path);
  file.page_[1] = ']';
  HVD_RETURN_IF_ERROR(file.write(0, {file.page_.data(), kPage}));
  file.page_[1] = ' ';
  if (::ftruncate(file.fd_.get(), kPage) != 0) {
    return system_error(cat("cannot cut the timeline ", path), errno);
  }
  return file;
}

Status TraceFile::write(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error(cat("cannot write the timeline ", path_), errno);
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

void TraceFile::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

void TraceFile::append(std::string_view value) {
  HVD_CHECK(value.size() <= kLongestEvent);
  if (!failure_.ok()) return;
  // The bytes to add are ",\n", the value and "\n]\n".
  if (used_ + value.size() + 5 > kPage) {
    if (Status status = cross(); !status.ok()) return fail(std::move(status));
  }
  const auto put = [this](std::string_view text) {
    std::memcpy(page_.data() + used_, text.data(), text.size());
    used_ += text.size();
  };
  put(empty_ ? "\n" : ",\n");
  put(value);
  empty_ = false;
}

Status TraceFile::flush() {
  if (!failure_.ok() || used_ == written_) return failure_;
  const size_t size = std::min<size_t>(3, kPage - used_);
  std::memcpy(page_.data() + used_, "\n]\n", size);
  const Status status = write(base_ + written_, {page_.data() + written_, used_ + size - written_});
  std::memset(page_.data() + used_, ' ', size);
  if (!status.ok()) fail(status);
  written_ = used_;
  return failure_;
}

// Moves the closing bracket from this page to the start of the next page.
Status TraceFile::cross() {
  HVD_RETURN_IF_ERROR(flush());
  // First move the bracket to the last byte of this page.
  page_[kPage - 1] = ']';
  const Status moved = write(base_ + written_, {page_.data() + written_, kPage - written_});
  page_.fill(' ');
  HVD_RETURN_IF_ERROR(moved);
  HVD_RETURN_IF_ERROR(write(base_ + kPage, {page_.data(), kPage}));
  // mmap() needs an offset at a multiple of the machine's page size, which may be larger than kPage.
  const auto granule = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t start = base_ / granule * granule;
  const uint64_t end = base_ + 2 * kPage;
  struct stat about {};
  void* map = MAP_FAILED;
  // Check the size: the file may have been truncated, and a store beyond its end raises SIGBUS.
  if (::fstat(fd_.get(), &about) == 0 && static_cast<uint64_t>(about.st_size) >= end) {
    map = ::mmap(nullptr, end - start, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                 static_cast<off_t>(start));
  }
  if (map == MAP_FAILED) {
    HVD_RETURN_IF_ERROR(write(base_ + kPage - 1, " ]"));
  } else {
    auto* bytes = static_cast<char*>(map) + (base_ - start) + kPage - 1;
    constexpr char kNext[] = {' ', ']'};
    TwoBytes both;
    std::memcpy(&both, kNext, sizeof both);
    reinterpret_cast<volatile TwoBytes*>(bytes)->value = both.value;
    ::munmap(map, end - start);
  }
  base_ += kPage;
  used_ = written_ = 0;
  return {};
}

Status TraceFile::finish() {
  HVD_RETURN_IF_ERROR(flush());
  // The end of the file is "\n]\n" after flush(), or the bracket alone after cross().
  const uint64_t end = base_ + written_ + std::min<size_t>(3, kPage - written_);
  if (::ftruncate(fd_.get(), static_cast<off_t>(end)) != 0) {
    fail(system_error(cat("cannot cut the timeline ", path_), errno));
  }
  return failure_;
}

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::string& path, int32_t size,
                                                         int64_t start,
                                                         std::function<void()> on_finished) {
  HVD_ASSIGN_OR_RETURN(TraceFile file, TraceFile::create(path));
  return std::unique_ptr<TraceWriter>(
      new TraceWriter(std::move(file), size, start, std::move(on_finished)));
}

TraceWriter::TraceWriter(TraceFile file, int32_t size, int64_t start,
                         std::function<void()> on_finished)
    : file_(std::move(file)),
      format_(size, start, epoch_micros(), [this](std::string_view value) { file_.append(value); }),
      on_finished_(std::move(on_finished)) {
  thread_ = std::thread([this] { run(); });
}

TraceWriter::~TraceWriter() {
  finish();
  thread_.join();
}

void TraceWriter::add(TraceBatch batch) {
  {
    MutexLock lock(mutex_);
    uint64_t& dropped = dropped_[batch.rank];
    if (slots_ + batch.slots.size() > kMostSlots) {
      // Keep the batch without its slots, to report the lost events.
      dropped += batch.slots.size();
      batch.slots.clear();
    }
    batch.dropped += dropped;
    slots_ += batch.slots.size();
    batches_.push_back(std::move(batch));
  }
  changed_.notify_one();
}

void TraceWriter::finish() {
  {
    MutexLock lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_one();
}

void TraceWriter::run() {
  ::pthread_setname_np(::pthread_self(), "hvd-timeline");
  std::deque<TraceBatch> batches;
  bool finishing = false;
  while (!finishing) {
    {
      MutexLock lock(mutex_);
      changed_.wait(lock.native(),
                    [this]() HVD_REQUIRES(mutex_) { return finishing_ || !batches_.empty(); });
      batches.swap(batches_);
      slots_ = 0;
      finishing = finishing_;
    }
    for (const TraceBatch& batch : batches) format_.add(batch);
    batches.clear();
    if (finishing) format_.finish();
    const bool was_fine = status_.ok();
    status_ = finishing ? file_.finish() : file_.flush();
    if (was_fine && !status_.ok()) {
      log::warning(status_.message() + "; the timeline ends here, and the job goes on");
    }
  }
  on_finished_();
}

}  // namespace hvd::runtime
