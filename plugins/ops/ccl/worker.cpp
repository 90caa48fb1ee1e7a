#include "ops/ccl/worker.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <utility>

#include "base/text.h"

namespace hvd::ops::ccl {
namespace {

// A connection that breaks is seldom the cause: what the controller learns meanwhile goes before.
constexpr std::chrono::seconds kGrace{2};
// A library that hangs must not keep the process.
constexpr std::chrono::seconds kEnd{20};
// Polls without progress after which the thread yields the processor before each poll.
constexpr int kEagerPolls = 1000;
constexpr size_t kLongestSaid = 500;

// oneCCL is one for the whole process, whatever runtimes begin and end in it.
std::atomic<bool>& abandoned() {
  static auto* const kFlag = new std::atomic<bool>(false);
  return *kFlag;
}

Status guarded(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::exception& failure) {
    const std::string_view text = failure.what();
    return aborted(
        printable(text.starts_with("oneCCL") ? text : cat("oneCCL: ", text), kLongestSaid));
  }
}

}  // namespace

bool Worker::has_abandoned() { return abandoned().load(); }

std::shared_ptr<Worker> Worker::start(const Api& api, std::shared_ptr<UniqueFd> event) {
  auto worker = std::make_shared<Worker>(api, std::move(event));
  worker->thread_ = std::thread([worker] { worker->work(); });
  return worker;
}

void Worker::make(std::shared_ptr<Group> group) {
  const std::lock_guard lock(mutex_);
  orders_.push_back({What::kMake, std::move(group), nullptr});
  changed_.notify_all();
}

void Worker::add(std::shared_ptr<Group> group, std::shared_ptr<CclQueuedBatch> queued) {
  const std::lock_guard lock(mutex_);
  orders_.push_back({What::kRun, std::move(group), std::move(queued)});
  changed_.notify_all();
}

void Worker::drop(std::shared_ptr<Group> group) {
  const std::lock_guard lock(mutex_);
  orders_.push_back({What::kDrop, std::move(group), nullptr});
  changed_.notify_all();
}

void Worker::stop() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return;
  closing_ = true;
  if (const auto group = making_.lock()) group->store->close();
  changed_.notify_all();
  const bool ended = changed_.wait_for(lock, kEnd, [this] { return ended_; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    const std::lock_guard at_batches(batches_);
    batches_are_gone_ = true;
    abandoned().store(true);
    thread_.detach();
  }
}

void Worker::work() {
  ::pthread_setname_np(::pthread_self(), "hvd-ccl");
  int idle_polls = 0;
  std::unique_lock lock(mutex_);
  while (failure_.ok() && !(closing_ && orders_.empty())) {
    if (closing_ && !running_.empty()) break;
    Order order{What::kMake, nullptr, nullptr};
    if (running_.empty()) changed_.wait(lock, [this] { return closing_ || !orders_.empty(); });
    if (!orders_.empty()) {
      order = std::move(orders_.front());
      orders_.pop_front();
      if (order.what == What::kMake) making_ = order.group;
      if (closing_ && order.what != What::kDrop) break;
    }
    lock.unlock();
    bool moved = order.group != nullptr;
    Status status = moved ? obey(order) : Status();
    if (status.ok()) status = advance(&moved);
    idle_polls = moved ? 0 : idle_polls + 1;
    if (idle_polls > kEagerPolls) std::this_thread::yield();
    lock.lock();
    making_.reset();
    if (!status.ok()) {
      failure_ = status;
      if (order.queued) orders_.push_front(order);
    }
  }
  if (!failure_.ok()) fail_all(lock);
  if (!failure_.ok() || !running_.empty()) abandon();
  for (const auto& group : made_) static_cast<void>(destroy(*group));
  ended_ = true;
  changed_.notify_all();
}

Status Worker::obey(const Order& order) {
  Members& members = order.group->members;
  switch (order.what) {
    case What::kMake:
      return guarded([&]() -> Status {
        members.communicator = new abi::Communicator(api_.create_communicator.function(
            members.size, members.index, order.group->store, *api_.create_communicator.defaults));
        order.group->store->leave_as_is();
        made_.push_back(order.group);
        return {};
      });
    case What::kDrop:
      made_.remove(order.group);
      return destroy(*order.group);
    default:
      break;
  }
  auto batch = std::make_unique<CclBatch>(api_, buffers_, members, *order.queued->batch);
  CclBatch& started = *batch;
  running_.push_back({order.group, order.queued, std::move(batch)});
  return guarded([&] { return started.start(); });
}

Status Worker::destroy(Group& group) {
  return guarded([&]() -> Status {
    if (group.members.communicator != nullptr)
      api_.destroy_communicator(group.members.communicator);
    delete std::exchange(group.members.communicator, nullptr);
    return {};
  });
}

Status Worker::advance(bool* moved) {
  return guarded([&]() -> Status {
    for (auto at = running_.begin(); at != running_.end();) {
      if (!at->batch->test()) {
        ++at;
        continue;
      }
      {
        const std::lock_guard at_batches(batches_);
        if (batches_are_gone_) return aborted("oneCCL came back after the job had given it up");
        at->batch->finish();
      }
      end(at->queued, {});
      at = running_.erase(at);
      *moved = true;
    }
    return {};
  });
}

void Worker::end(const std::shared_ptr<CclQueuedBatch>& queued, const Status& status) {
  if (queued->over.load()) return;
  queued->status = status;
  queued->over.store(true, std::memory_order_release);
  const uint64_t one = 1;
  static_cast<void>(::write(event_->get(), &one, sizeof one));
}

void Worker::fail_all(std::unique_lock<std::mutex>& lock) {
  changed_.wait_for(lock, kGrace, [this] { return closing_; });
  for (const Running& one : running_) end(one.queued, failure_);
  for (;;) {
    while (!orders_.empty()) {
      if (orders_.front().queued) end(orders_.front().queued, failure_);
      orders_.pop_front();
    }
    if (closing_) return;
    changed_.wait(lock, [this] { return closing_ || !orders_.empty(); });
  }
}

// Leaks what runs: oneCCL may still write to its memory.
void Worker::abandon() {
  abandoned().store(true);
  for (Running& one : running_) static_cast<void>(one.batch.release());
  running_.clear();
  made_.clear();
}

}  // namespace hvd::ops::ccl
