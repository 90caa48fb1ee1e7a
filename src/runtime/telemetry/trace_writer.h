// The thread that writes the timeline's file, on the root, while a timeline runs. The size of its queue
// is limited: events beyond the limit are counted as lost.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/telemetry/trace_format.h"

namespace hvd::runtime {

// The timeline's file: a JSON array that is valid at any time, even after SIGKILL, which may interrupt a
// write of several pages between two pages. TraceWriter owns the file. One thread.
//
// The file grows by pages of spaces after the closing bracket. Events replace the bracket within one
// page, by one write, which is atomic. A store of two bytes into the mapped file moves the bracket to
// the next page.
class TraceFile {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kLongestEvent = kPage - 8;

  // Creates or truncates the file, with an empty array.
  static Result<TraceFile> create(const std::string& path);
  TraceFile(TraceFile&&) = default;

  // Appends a value to the array; flush() writes it to the file. The first failure is kept.
  void append(std::string_view value);
  Status flush();
  // Flushes, and removes the spaces at the end.
  Status finish();

 private:
  explicit TraceFile(UniqueFd fd, std::string path);
  Status write(uint64_t offset, std::string_view bytes);
  Status cross();
  void fail(Status status);

  UniqueFd fd_;
  std::string path_;
  Status failure_;
  uint64_t base_ = 0;               // file offset of the page that has the closing bracket
  std::array<char, kPage> page_{};  // next content of this page; spaces after used_
  size_t used_ = 0;                 // offset of the bracket in page_
  size_t written_ = 0;              // offset of the bracket in the file's page
  bool empty_ = true;
};

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
  // Ends the file; add() must not follow.
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
