// The thread that makes every call of oneCCL's: communicators in the order of their process sets,
// since making one waits for its members, and batches, which advance while it asks for their end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "ops/ccl/batch.h"
#include "ops/ccl/store.h"

namespace hvd::ops::ccl {

// A process set, as oneCCL's communicator of it.
struct Group {
  std::shared_ptr<Store> store;
  Members members;
};

// A batch in the queue of the library's thread.
struct CclQueuedBatch {
  explicit CclQueuedBatch(const hvd_batch& of) : batch(&of) {}
  const hvd_batch* const batch;
  Status status;  // before `over`
  std::atomic<bool> over{false};
};

class Worker {
 public:
  // `event` becomes readable when a batch is over.
  static std::shared_ptr<Worker> start(const Api& api, std::shared_ptr<UniqueFd> event);
  Worker(const Api& api, std::shared_ptr<UniqueFd> event) : api_(api), event_(std::move(event)) {}

  void make(std::shared_ptr<Group> group);
  void add(std::shared_ptr<Group> group, std::shared_ptr<CclQueuedBatch> queued);
  // Once its batches are over.
  void drop(std::shared_ptr<Group> group);
  // Ends the thread. After a failure, or with work under way, what oneCCL has stays with it for ever;
  // when it returns, nothing touches the memory of batches.
  void stop();
  // Whether this process has abandoned work inside oneCCL, which then cannot start again.
  static bool has_abandoned();

 private:
  enum class What { kMake, kRun, kDrop };
  struct Order {
    What what;
    std::shared_ptr<Group> group;
    std::shared_ptr<CclQueuedBatch> queued;
  };
  struct Running {
    std::shared_ptr<Group> group;
    std::shared_ptr<CclQueuedBatch> queued;
    std::unique_ptr<CclBatch> batch;
  };
  void work();
  Status obey(const Order& order);
  Status destroy(Group& group);
  Status advance(bool* moved);
  void end(const std::shared_ptr<CclQueuedBatch>& queued, const Status& status);
  void fail_all(std::unique_lock<std::mutex>& lock);
  void abandon();

  const Api api_;  // its own: a thread that hangs in the library may outlive the backend
  const std::shared_ptr<UniqueFd> event_;
  BufferPool buffers_;                      // of the thread
  std::list<Running> running_;              // of the thread
  std::list<std::shared_ptr<Group>> made_;  // of the thread

  std::mutex batches_;             // held while results are written to the memory of a batch
  bool batches_are_gone_ = false;  // guarded by it: stop() has returned, and the thread hangs

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Order> orders_;
  Status failure_;
  std::weak_ptr<Group> making_;
  bool closing_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace hvd::ops::ccl
