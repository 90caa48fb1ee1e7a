// The thread that writes the timeline's file, on the root and while a timeline runs. Its queue is
// bounded; batches beyond the bound are counted as lost.
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
  // start: the root's clock now, in nanoseconds. on_finished is called by the thread when all is
  // written.
  static Result<std::unique_ptr<TraceWriter>> create(const std::string& path, int32_t size,
                                                     int64_t start,
                                                     std::function<void()> on_finished);
  // Writes all records that it was given, and returns when they are in the file.
  ~TraceWriter();

  // Any thread; never waits for the file.
  void add(TraceBatch batch);
  // Ends the file; no other call may follow.
  void finish();
  // The first error; call it after on_finished was called.
  const Status& status() const { return status_; }

 private:
  TraceWriter(TraceFile file, int32_t size, int64_t start, std::function<void()> on_finished);
  void run();

  static constexpr size_t kMostSlots = 1 << 20;  // 16 MiB

  TraceFile file_;  // used by the thread alone, like format_ and status_
  TraceFormat format_;
  Status status_;
  const std::function<void()> on_finished_;

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<TraceBatch> batches_ HVD_GUARDED_BY(mutex_);
  size_t slots_ HVD_GUARDED_BY(mutex_) = 0;  // in the queued batches
  std::unordered_map<int32_t, uint64_t> dropped_ HVD_GUARDED_BY(mutex_);
  bool finishing_ HVD_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace hvd::runtime
