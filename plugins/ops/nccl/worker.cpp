#include "ops/nccl/worker.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string_view>

#include "base/text.h"

namespace hvd::ops::nccl {
namespace {

// A connection that breaks is seldom the cause: what the controller learns meanwhile goes before.
constexpr std::chrono::seconds kGrace{2};
// How often what runs is looked at.
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::milliseconds kPause{1};
// A driver that hangs must not keep the process.
constexpr std::chrono::seconds kEnd{20};
constexpr double kIdSlice = 1;

// What a stream calls when it has come to the end of a batch, from a thread of the driver's.
struct Notice {
  std::shared_ptr<NcclQueuedBatch> queued;
  std::shared_ptr<UniqueFd> event;
};

void ring(const UniqueFd& event) {
  const uint64_t one = 1;
  static_cast<void>(::write(event.get(), &one, sizeof one));
}

bool has_fractions(int32_t dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
         dtype == HVD_FLOAT64;
}

void on_reached(void* argument) {
  const std::unique_ptr<Notice> notice(static_cast<Notice*>(argument));
  int expected = NcclQueuedBatch::kRunning;
  if (notice->queued->state.compare_exchange_strong(expected, NcclQueuedBatch::kReached))
    ring(*notice->event);
}

}  // namespace

std::shared_ptr<Worker> Worker::start(WorkerPlan plan) {
  auto worker = std::make_shared<Worker>(std::move(plan));
  worker->thread_ = std::thread([worker] { worker->work(); });
  return worker;
}

void Worker::add(std::shared_ptr<NcclQueuedBatch> queued) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(queued));
  }
  changed_.notify_all();
}

void Worker::stop(bool abort) {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return;
  closing_ = true;
  aborting_ = aborting_ || abort;
  changed_.notify_all();
  // Inside a call that waits for peers for ever it has no batch yet.
  const bool hangs = is_opening() && plan_.api.comm_init_rank_config == nullptr;
  const bool ended =
      changed_.wait_for(lock, hangs ? std::chrono::seconds(0) : kEnd, [this] { return ended_; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Worker::doubt(const std::shared_ptr<NcclQueuedBatch>& queued) {
  {
    const std::lock_guard lock(mutex_);
    queued->state.store(NcclQueuedBatch::kRunning);
    running_.push_back(queued);
  }
  changed_.notify_all();
}

Status Worker::judge() {
  if (!is_opening() || opened_by_.seconds_left() > -1) return {};
  return deadline_exceeded(cat(plan_.api.family,
                               ": not all ranks of a process set have come within ",
                               plan_.start_seconds, " s; HOROVOD_START_TIMEOUT may be raised"));
}

void Worker::wake() const { ring(*plan_.event); }

bool Worker::pause() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, kPause, [this] { return closing_; });
}

// The first member makes it, and what keeps it from that is every member's sentence.
Result<abi::UniqueId> Worker::exchange_id(const std::string& key, int index, int size,
                                          const Deadline& deadline) {
  abi::UniqueId id{};
  if (index == 0) {
    const Status status = plan_.api.of_nccl(plan_.api.get_unique_id(&id), "ncclGetUniqueId");
    const std::string record =
        status.ok() ? "+" + std::string(id.internal, sizeof id.internal) : "-" + status.message();
    if (size > 1) {
      const int code =
          plan_.host.store_set(plan_.host.host, key.c_str(), record.data(), record.size());
      if (status.ok() && code != HVD_OK) {
        return Status(static_cast<Code>(code), "the ranks' store cannot be reached");
      }
    }
    if (!status.ok()) return status;
    return id;
  }
  char record[1024];
  size_t length = 0;
  int code = HVD_DEADLINE_EXCEEDED;
  while (code == HVD_DEADLINE_EXCEEDED) {
    if (!pause()) return aborted("NCCL was given up");
    if (deadline.seconds_left() <= 0) break;
    code = plan_.host.store_get(plan_.host.host, key.c_str(), record, sizeof record, &length,
                                std::min(kIdSlice, deadline.seconds_left()));
  }
  if (code != HVD_OK) {
    return Status(static_cast<Code>(code),
                  cat(plan_.api.family, ": the first rank of a process set has not come"));
  }
  const std::string_view said(record, std::min(length, sizeof record));
  if (!said.starts_with('+')) return unavailable(std::string(said.substr(said.empty() ? 0 : 1)));
  std::memcpy(id.internal, record + 1, std::min(said.size() - 1, sizeof id.internal));
  return id;
}

Status Worker::open_channels() {
  const Api& api = plan_.api;
  HVD_RETURN_IF_ERROR(api.of_device(api.set_device(plan_.device), "SetDevice"));
  HVD_RETURN_IF_ERROR(api.of_device(
      api.stream_create_with_priority(&notices_, abi::kStreamNonBlocking, 0), "StreamCreate"));
  HVD_RETURN_IF_ERROR(
      api.of_device(api.event_create_with_flags(&done_, abi::kEventDisableTiming), "EventCreate"));
  for (int i = 0; i < plan_.channels; ++i) {
    HVD_ASSIGN_OR_RETURN(
        const abi::UniqueId id,
        exchange_id(cat(plan_.name, "/", i), plan_.place.index, plan_.place.size, opened_by_));
    channels_.push_back(std::make_shared<Channel>(api));
    bool is_late = false;
    const Status opened = channels_.back()->open(id, plan_.place.index, plan_.place.size, [&] {
      is_late = opened_by_.seconds_left() <= 0;
      return pause() && !is_late;
    });
    if (is_late) {
      return deadline_exceeded(cat(api.family, ": not all ranks of a process set have come within ",
                                   plan_.start_seconds, " s; HOROVOD_START_TIMEOUT may be raised"));
    }
    HVD_RETURN_IF_ERROR(opened);
  }
  return {};
}

// An average of integers is rounded once, so not on the way.
bool Worker::goes_by_hosts(const hvd_batch& batch) const {
  if (!plan_.grid || batch.op != HVD_ALLREDUCE) return false;
  const bool asked = plan_.is_torus || (batch.tuning != nullptr && batch.tuning->drivers == 1);
  return asked && (batch.postscale == 1 || has_fractions(batch.dtype));
}

// All members come here at the same batch.
Status Worker::add_sub_communicators(Channel& channel, size_t number) {
  if (channel.sub_communicator(Channel::kAcross) != nullptr) return {};
  const Grid& grid = *plan_.grid;
  const Deadline deadline = Deadline::after_seconds(plan_.start_seconds);
  const auto pause_on = [&] { return pause() && deadline.seconds_left() > 0; };
  HVD_ASSIGN_OR_RETURN(const abi::UniqueId inside,
                       exchange_id(cat(plan_.name, "/", number, "/host", grid.host), grid.place,
                                   grid.places, deadline));
  HVD_RETURN_IF_ERROR(
      channel.add_sub_communicator(Channel::kInside, inside, grid.place, grid.places, pause_on));
  HVD_ASSIGN_OR_RETURN(const abi::UniqueId across,
                       exchange_id(cat(plan_.name, "/", number, "/place", grid.place), grid.host,
                                   grid.hosts, deadline));
  return channel.add_sub_communicator(Channel::kAcross, across, grid.host, grid.hosts, pause_on);
}

// The stream goes on to the next batch while the driver tells of this one.
Status Worker::run(const std::shared_ptr<NcclQueuedBatch>& queued) {
  const Api& api = plan_.api;
  queued->channel = channels_[queued->batch->sequence % channels_.size()];
  Channel& channel = *queued->channel;
  plan_.memory.free_returned(api, channel.stream());
  const bool by_hosts = goes_by_hosts(*queued->batch);
  if (by_hosts)
    HVD_RETURN_IF_ERROR(add_sub_communicators(channel, queued->batch->sequence % channels_.size()));
  Collectives collectives(channel, plan_.place, *queued->batch, by_hosts ? &*plan_.grid : nullptr);
  HVD_RETURN_IF_ERROR(collectives.enqueue([this] { return pause(); }));
  queued->kept = collectives.take_kept();
  HVD_RETURN_IF_ERROR(api.of_device(api.event_record(done_, channel.stream()), "EventRecord"));
  HVD_RETURN_IF_ERROR(api.of_device(api.stream_wait_event(notices_, done_, 0), "StreamWaitEvent"));
  auto notice = std::make_unique<Notice>(Notice{queued, plan_.event});
  HVD_RETURN_IF_ERROR(
      api.of_device(api.launch_host_func(notices_, &on_reached, notice.get()), "LaunchHostFunc"));
  static_cast<void>(notice.release());
  return {};
}

Status Worker::look() {
  for (const auto& channel : channels_) HVD_RETURN_IF_ERROR(channel->check());
  const int error = plan_.api.event_query(done_);
  return error == abi::kNotReady ? Status() : plan_.api.of_device(error, "a batch");
}

void Worker::fail(std::unique_lock<std::mutex>& lock, const Status& cause) {
  if (failure_.ok()) failure_ = cause;
  changed_.wait_for(lock, kGrace, [this] { return closing_; });
  if (closing_) return;
  std::vector<std::shared_ptr<NcclQueuedBatch>> failing;
  for (auto* batches : {&running_, &waiting_}) {
    for (const auto& queued : *batches) {
      int expected = NcclQueuedBatch::kRunning;
      if (queued->state.compare_exchange_strong(expected, NcclQueuedBatch::kFailing))
        failing.push_back(queued);
    }
    batches->clear();
  }
  lock.unlock();
  for (const auto& channel : channels_) channel->abort();
  for (const auto& queued : failing) {
    queued->status = cause;
    queued->state.store(NcclQueuedBatch::kFailed);
  }
  wake();
  lock.lock();
}

void Worker::work() {
  ::pthread_setname_np(::pthread_self(), "hvd-nccl");
  Status status;
  try {
    status = open_channels();
  } catch (const std::exception& failure) {
    status = internal_error(failure.what());
  }
  opening_.store(false);
  std::unique_lock lock(mutex_);
  if (!status.ok() && !closing_) fail(lock, status);
  while (!closing_) {
    const auto has_news = [this] { return closing_ || !waiting_.empty(); };
    if (running_.empty()) {
      changed_.wait(lock, [&] { return has_news() || !running_.empty(); });
    } else {
      changed_.wait_for(lock, kLook, has_news);
    }
    if (closing_) break;
    std::erase_if(running_, [](const auto& queued) {
      return queued->state.load() != NcclQueuedBatch::kRunning;
    });
    std::shared_ptr<NcclQueuedBatch> queued;
    if (!waiting_.empty()) {
      queued = std::move(waiting_.front());
      waiting_.pop_front();
      running_.push_back(queued);
    }
    if (running_.empty()) continue;
    status = failure_;
    lock.unlock();
    if (status.ok()) status = queued != nullptr ? run(queued) : look();
    lock.lock();
    if (!status.ok() && !closing_) fail(lock, status);
  }
  lock.unlock();
  end_all();
  lock.lock();
  ended_ = true;
  lock.unlock();
  changed_.notify_all();
}

void Worker::end_all() {
  bool aborts = false;
  {
    const std::lock_guard lock(mutex_);
    aborts = aborting_ || !failure_.ok();
  }
  if (aborts) {
    for (const auto& channel : channels_) channel->abort();
  }
  for (const auto& channel : channels_) channel->close();
  if (notices_ != nullptr) {
    plan_.api.stream_synchronize(notices_);
    plan_.api.stream_destroy(notices_);
  }
  if (done_ != nullptr) plan_.api.event_destroy(done_);
}

}  // namespace hvd::ops::nccl
