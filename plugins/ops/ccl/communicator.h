// A process set's communicator in oneCCL, and the one thread that makes all calls of oneCCL for all
// sets. The thread creates communicators in the order of their sets, because a creation waits for all
// members. Batches advance while the thread tests their events. The Backend owns the communicators.
#pragma once

#include <list>
#include <memory>

#include "base/mutex.h"
#include "ops/ccl/batch.h"
#include "ops/ccl/store.h"
#include "ops/common/library_thread.h"

namespace hvd::ops::ccl {

// A process set, as oneCCL's communicator of it.
struct CclGroup {
  std::shared_ptr<CclStore> store;
  Members members;
};

class CclThread : public LibraryThread {
 public:
  CclThread(const CclApi& api, std::shared_ptr<WakeEvent> event)
      : LibraryThread("hvd-ccl", "oneCCL", std::move(event)), api_(api) {}

  void make(std::shared_ptr<CclGroup> group);
  // Once its batches are over.
  void drop(std::shared_ptr<CclGroup> group);
  // Ends the thread. After a failure, or with work under way, what oneCCL has stays with it forever;
  // when it returns, nothing touches the memory of batches.
  void end();
  // Whether this process has abandoned work inside oneCCL, which then cannot start again.
  static bool has_abandoned();

  const CclApi& api() const { return api_; }
  BufferPool& buffers() { return buffers_; }

 protected:
  void interrupt() override;
  void close_library(bool failed, Batches running) override;

 private:
  Status create(const std::shared_ptr<CclGroup>& group);
  Status destroy(CclGroup& group);

  const CclApi api_;    // its own: a thread that hangs in the library may outlive the backend
  BufferPool buffers_;  // used by that thread only
  std::list<std::shared_ptr<CclGroup>> made_;  // used by that thread only

  Mutex mutex_;
  std::weak_ptr<CclGroup> making_ HVD_GUARDED_BY(mutex_);
  bool interrupted_ HVD_GUARDED_BY(mutex_) = false;
};

class CclCommunicator : public BackendCommunicator {
 public:
  CclCommunicator(std::shared_ptr<CclThread> thread, std::shared_ptr<CclGroup> group)
      : thread_(std::move(thread)), group_(std::move(group)) {
    thread_->make(group_);
  }
  ~CclCommunicator() override { thread_->drop(group_); }
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  bool wakes() const override { return true; }

 private:
  const std::shared_ptr<CclThread> thread_;
  const std::shared_ptr<CclGroup> group_;
};

}  // namespace hvd::ops::ccl
