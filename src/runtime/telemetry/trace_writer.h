// The thread that writes the timeline's file, on the root, while a timeline runs. The size of its queue
// is limited: events beyond the limit are counted as lost.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "runtime/telemetry/trace_file.h"
#include "runtime/telemetry/trace_format.h"

namespace hvd::runtime {

class TraceWriter {
 public:
  // `start`: the current time of the root's clock, in nanoseconds. The thread calls `on_finished` when the
  // file is complete.
  static Result<std::unique_ptr<TraceWriter>> create(const std::string& path, int32_t size,
                                                     int64_t start,
                                                     std::function<void()> on_finished);
  // Writes all added records, and returns when they are in the file.
  ~TraceWriter();

  // Queues records. Any thread; never waits for the file.
  void add(TraceBatch batch);
  // Ends the file; no other call may follow.
  void finish();
  // Returns the first error. Call it after on_finished was called.
  const Status& status() const { return status_; }

 private:
  TraceWriter(TraceFile file, int32_t size, int64_t start, std::function<void()> on_finished);
  void run();

  static constexpr size_t kMostSlots = 1 << 20;  // 16 MiB

  TraceFile file_;  // used only by the thread, as are format_ and status_
  TraceFormat format_;
  Status status_;
  const std::function<void()> on_finished_;

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<TraceBatch> batches_ HVD_GUARDED_BY(mutex_);
  size_t slots_ HVD_GUARDED_BY(mutex_) = 0;  // slots in queued batches
  std::unordered_map<int32_t, uint64_t> dropped_ HVD_GUARDED_BY(mutex_);
  bool finishing_ HVD_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace hvd::runtime
