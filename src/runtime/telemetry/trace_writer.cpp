#include "runtime/telemetry/trace_writer.h"

#include <pthread.h>

#include <chrono>

#include "base/log/log.h"

namespace hvd::runtime {
namespace {

int64_t epoch_micros() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

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
