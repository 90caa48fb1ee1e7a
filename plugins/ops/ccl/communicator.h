// A process set's communicator in oneCCL, and the single thread that calls oneCCL for all sets. The thread
// creates the communicators in the order of their sets, because a creation waits for all members. Batches
// advance while the thread tests their events. Class Backend owns the communicators.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "horovod/plugin.h"
#include "ops/ccl/abi.h"
#include "ops/ccl/batch.h"
#include "ops/common/library_thread.h"

namespace hvd::ops::ccl {

// Implements oneCCL's key-value store over the job's store. Each communicator of two or more ranks
// owns a CclStore; oneCCL calls it. Any thread may close the CclStore.
class CclStore : public abi::KvsInterface {
 public:
  // `prefix`: prefix of its keys, equal on all members and different for each communicator.
  CclStore(const hvd_plugin_host& host, std::string prefix, bool is_alone, int id, double seconds)
      : host_(host),
        prefix_(std::move(prefix)),
        is_alone_(is_alone),
        id_(id),
        deadline_(Deadline::after_seconds(seconds)) {}

  // get and set throw once the store is closed. get also throws if a member has not arrived in time.
  std::vector<char> get(const abi::String& key) override;
  void set(const abi::String& key, const std::vector<char>& data) override;
  int get_id() override { return id_; }

  // Call it once all members are connected. Afterwards get and set do nothing: oneCCL's keys stay in the store.
  void leave_as_is() { done_.store(true); }
  void close() { closed_.store(true); }

 private:
  std::string name_of(const abi::String& key) const {
    return prefix_ + std::string(key.text, key.length);
  }
  const hvd_plugin_host& host_;
  const std::string prefix_;
  const bool is_alone_;
  const int id_;
  const Deadline deadline_;
  // The values of a communicator with one rank, which does not need the job's store.
  std::map<std::string, std::vector<char>> own_;
  std::atomic<bool> done_{false}, closed_{false};
};

// The oneCCL communicator of a process set.
struct CclGroup {
  std::shared_ptr<CclStore> store;
  Members members;
};

class CclThread : public LibraryThread {
 public:
  CclThread(const CclApi& api, std::shared_ptr<WakeEvent> event)
      : LibraryThread("hvd-ccl", "oneCCL", std::move(event)), api_(api) {}

  void make(std::shared_ptr<CclGroup> group);
  // Call it after the batches of the group have ended.
  void drop(std::shared_ptr<CclGroup> group);
  // Ends the thread. After a failure, or with work in flight, the objects of oneCCL are never freed.
  // After the return, no thread uses the memory of batches.
  void end();
  // Returns whether this process has abandoned work in oneCCL, which then cannot start again.
  static bool has_abandoned();

  const CclApi& api() const { return api_; }
  BufferPool& buffers() { return buffers_; }

 protected:
  void interrupt() override;
  void close_library(bool failed, Batches running) override;

 private:
  Status create(const std::shared_ptr<CclGroup>& group);
  Status destroy(CclGroup& group);

  const CclApi api_;    // a copy: a thread that hangs in the library may outlive the backend
  BufferPool buffers_;  // used by CclThread only
  std::list<std::shared_ptr<CclGroup>> made_;  // used by CclThread only

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
