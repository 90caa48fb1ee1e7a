#include "ops/ccl/communicator.h"

#include <exception>
#include <stdexcept>
#include <utility>

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

}  // namespace

bool CclThread::has_abandoned() { return abandoned().load(); }

void CclThread::make(std::shared_ptr<CclGroup> group) {
  call([this, group = std::move(group)] { return create(group); });
}

void CclThread::drop(std::shared_ptr<CclGroup> group) {
  call([this, group = std::move(group)] {
    made_.remove(group);
    return destroy(*group);
  });
}

void CclThread::end() {
  if (!stop()) abandoned().store(true);
}

void CclThread::interrupt() {
  const MutexLock lock(mutex_);
  interrupted_ = true;
  if (const auto group = making_.lock()) group->store->close();
}

Status CclThread::create(const std::shared_ptr<CclGroup>& group) {
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

Status CclThread::destroy(CclGroup& group) {
  if (group.members.communicator != nullptr) api_.destroy_communicator(group.members.communicator);
  delete std::exchange(group.members.communicator, nullptr);
  return {};
}

// Leaks the running batches, because oneCCL may still write to their memory.
void CclThread::close_library(bool failed, Batches running) {
  if (failed || !running.empty()) {
    abandoned().store(true);
    static_cast<void>(new Batches(std::move(running)));
    made_.clear();
  }
  for (const auto& group : made_) static_cast<void>(guarded([&] { return destroy(*group); }));
}

Result<std::shared_ptr<RunningBatch>> CclCommunicator::start(const hvd_batch& batch) {
  auto queued =
      std::make_shared<CclBatch>(thread_->api(), thread_->buffers(),
                                 std::shared_ptr<const Members>(group_, &group_->members), batch);
  thread_->add(queued);
  return std::shared_ptr<RunningBatch>(std::move(queued));
}

std::vector<char> CclStore::get(const abi::String& key) {
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

void CclStore::set(const abi::String& key, const std::vector<char>& data) {
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

}  // namespace hvd::ops::ccl
