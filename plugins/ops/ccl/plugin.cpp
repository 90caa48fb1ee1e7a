// The op plugin over oneCCL, for tensors in host memory.
#include "horovod/plugin.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/platform_cpu.h"
#include "base/text.h"
#include "ops/ccl/abi.h"
#include "ops/ccl/batch.h"
#include "ops/common/backend.h"
#include "ops/common/library_thread.h"
#include "ops/common/op_plugin.h"
#include "ops/common/rounds.h"

namespace hvd::ops::ccl {
namespace {

// Time limit of one request to the store, short because oneCCL also requests keys that may never exist.
constexpr double kSlice = 0.05;
constexpr size_t kRecord = 4096;

// True if work in oneCCL was abandoned. All runtimes of a process share one oneCCL.
std::atomic<bool>& abandoned() {
  static auto* const kFlag = new std::atomic<bool>(false);
  return *kFlag;
}

// oneCCL's key-value store for one communicator, over the job's store. Any thread may call close().
class CclStore : public abi::KvsInterface {
 public:
  // `prefix`: prefix of its keys, equal on all members and different for each communicator.
  CclStore(const hvd_plugin_host& host, std::string prefix, bool is_alone, int id, double seconds)
      : host_(host),
        prefix_(std::move(prefix)),
        is_alone_(is_alone),
        id_(id),
        deadline_(Deadline::after_seconds(seconds)) {}

  // get and set throw if the job's store cannot be reached, or after close(). get also throws if a member has not
  // arrived in time.
  std::vector<char> get(const abi::String& key) override {
    if (done_.load()) return {};
    const std::string name = name_of(key);
    if (is_alone_) return own_[name];
    std::vector<char> value(kRecord);
    for (;;) {
      if (closed_.load()) throw std::runtime_error("the process set was closed");
      size_t size = 0;
      const int code =
          host_.store_get(host_.host, name.c_str(), value.data(), value.size(), &size, kSlice);
      if (code == HVD_OK && size > value.size()) {
        value.resize(size);
        continue;
      }
      if (code != HVD_OK && code != HVD_DEADLINE_EXCEEDED && code != HVD_NOT_FOUND) {
        throw std::runtime_error("the job's store cannot be reached");
      }
      if (code != HVD_OK && deadline_.passed()) {
        throw std::runtime_error(
            "not all members of a process set have come in time "
            "(HOROVOD_START_TIMEOUT)");
      }
      value.resize(code == HVD_OK ? size : 0);
      return value;
    }
  }
  void set(const abi::String& key, const std::vector<char>& data) override {
    if (done_.load()) return;
    if (closed_.load()) throw std::runtime_error("the process set was closed");
    if (is_alone_) {
      own_[name_of(key)] = data;
      return;
    }
    if (host_.store_set(host_.host, name_of(key).c_str(), data.data(), data.size()) != HVD_OK) {
      throw std::runtime_error("the job's store cannot be reached");
    }
  }
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

// The only thread that calls oneCCL, for all sets. Creates the communicators in the order of their sets, because a
// creation waits for all members. Batches advance while the thread tests their events.
class CclThread : public LibraryThread {
 public:
  CclThread(const CclApi& api, std::shared_ptr<WakeEvent> event)
      : LibraryThread("hvd-ccl", "oneCCL", std::move(event)), api_(api) {}

  void make(std::shared_ptr<CclGroup> group) {
    call([this, group = std::move(group)] { return create(group); });
  }
  // Call it after the batches of the group have ended.
  void drop(std::shared_ptr<CclGroup> group) {
    call([this, group = std::move(group)] {
      made_.remove(group);
      return destroy(*group);
    });
  }
  // Ends the thread. After a failure, or with work in flight, the objects of oneCCL are never freed.
  // After the return, no thread uses the memory of batches.
  void end() {
    if (!stop()) abandoned().store(true);
  }
  // Returns whether this process has abandoned work in oneCCL, which then cannot start again.
  static bool has_abandoned() { return abandoned().load(); }

  const CclApi& api() const { return api_; }
  BufferPool& buffers() { return buffers_; }

 protected:
  void interrupt() override {
    const MutexLock lock(mutex_);
    interrupted_ = true;
    if (const auto group = making_.lock()) group->store->close();
  }
  // Leaks the running batches, because oneCCL may still write to their memory.
  void close_library(bool failed, Batches running) override {
    if (failed || !running.empty()) {
      abandoned().store(true);
      static_cast<void>(new Batches(std::move(running)));
      made_.clear();
    }
    for (const auto& group : made_) static_cast<void>(guarded([&] { return destroy(*group); }));
  }

 private:
  Status create(const std::shared_ptr<CclGroup>& group) {
    {
      const MutexLock lock(mutex_);
      if (interrupted_) group->store->close();
      making_ = group;
    }
    Members& members = group->members;
    members.communicator = new abi::Communicator(api_.create_communicator.function(
        members.size, members.index, group->store, *api_.create_communicator.defaults));
    group->store->leave_as_is();
    made_.push_back(group);
    return {};
  }
  Status destroy(CclGroup& group) {
    if (group.members.communicator != nullptr)
      api_.destroy_communicator(group.members.communicator);
    delete std::exchange(group.members.communicator, nullptr);
    return {};
  }

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
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override {
    auto queued =
        std::make_shared<CclBatch>(thread_->api(), thread_->buffers(),
                                   std::shared_ptr<const Members>(group_, &group_->members), batch);
    thread_->add(queued);
    return std::shared_ptr<RunningBatch>(std::move(queued));
  }
  bool wakes() const override { return true; }

 private:
  const std::shared_ptr<CclThread> thread_;
  const std::shared_ptr<CclGroup> group_;
};

constexpr char kHalves[] = "halves";
// Higher than the score of the built-in operations: this backend is loaded only if the user has selected it.
constexpr int32_t kScore = 200;

class CclBackend : public Backend {
 public:
  CclBackend(const CclApi& api, const hvd_plugin_host& host, int32_t rank,
             std::shared_ptr<WakeEvent> event, bool has_halves)
      : has_halves_(has_halves),
        host_(host),
        rank_(rank),
        watch_(host, event),
        thread_(std::make_shared<CclThread>(api, std::move(event))) {
    thread_->start();
  }
  ~CclBackend() override {
    drop_all();
    thread_->end();
  }

  int32_t supports(const hvd_batch& batch) override {
    return can_run(batch, has_halves_) ? kScore : 0;
  }
  const char* activity(const hvd_batch& batch) override { return activity_of<"CCL">(batch.op); }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) override {
    auto group = std::make_shared<CclGroup>();
    group->store = std::make_shared<CclStore>(host_, set.name("ccl") + "/", set.size() == 1,
                                              made_++, start_seconds(host_));
    group->members.index = set.index_of(rank_);
    group->members.size = set.size();
    return std::unique_ptr<BackendCommunicator>(
        std::make_unique<CclCommunicator>(thread_, std::move(group)));
  }
  void on_abort() override { thread_->end(); }

 private:
  const bool has_halves_;
  const hvd_plugin_host& host_;
  const int32_t rank_;
  const WakeWatch watch_;
  const std::shared_ptr<CclThread> thread_;
  int made_ = 0;
};

// Compares the state of oneCCL on all ranks. If a process has abandoned oneCCL, the job continues without it.
// If the states differ otherwise, the start fails.
Status agree(const hvd_plugin_host& host, const hvd_plugin_config& config,
             const Result<CclApi>& api) {
  const auto version = api.ok() ? Result<std::string>(api->title) : api.error();
  const std::string own = CclThread::has_abandoned() ? "!" : library_record(version);
  HVD_ASSIGN_OR_RETURN(const auto found, Rounds(host, config).exchange("ccl-library", {}, own));
  if (std::find(found.begin(), found.end(), "!") != found.end()) {
    const char* why =
        "oneCCL cannot begin anew in a process after a failure; tensors go through the "
        "built-in operations";
    host.log(host.host, 3, why);
    return failed_precondition(why);
  }
  HVD_RETURN_IF_ERROR(check_same_library(
      found, "all ranks need one version of oneCCL; HOROVOD_CCL_LIBRARY may name its library"));
  return api.status();
}

struct Plugin {
  static constexpr const char* kName = "ccl";
  static constexpr int32_t kPriority = 45;
  static Status probe() { return open_api().status(); }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    auto api = open_api();
    HVD_RETURN_IF_ERROR(agree(host, config, api));
    auto event = WakeEvent::make();
    const Status started = event.ok() ? start(*api, host, config) : event.status();
    const std::string own = cpu_has_avx512() ? kHalves : "";
    HVD_ASSIGN_OR_RETURN(const auto can, Rounds(host, config).exchange("ccl-start", started, own));
    const bool has_halves = std::count(can.begin(), can.end(), kHalves) == config.size;
    if (config.rank == 0) {
      host.log(host.host, 2,
               cat("tensor operations go through ", api->title, ", ", api->library).c_str());
    }
    return std::unique_ptr<Backend>(
        std::make_unique<CclBackend>(*api, host, config.rank, *std::move(event), has_halves));
  }
};

}  // namespace
}  // namespace hvd::ops::ccl

HVD_PLUGIN_ENTRY(hvd::ops::BackendRecord<hvd::ops::ccl::Plugin>)
