#include "ops/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "base/text.h"
#include "ops/nccl/id_record.h"

namespace hvd::ops::nccl {
namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr double kIdSlice = 1;

// The argument of the host function that a stream calls at the end of a batch, on a thread of the
// driver.
struct StreamEndNotice {
  std::shared_ptr<NcclBatch> batch;
  std::shared_ptr<WakeEvent> event;
};

bool has_fractions(int32_t dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
         dtype == HVD_FLOAT64;
}

void on_reached(void* argument) {
  const std::unique_ptr<StreamEndNotice> notice(static_cast<StreamEndNotice*>(argument));
  if (notice->batch->reach()) notice->event->ring();
}

bool has_own_tensor(const hvd_batch& batch) {
  return std::any_of(batch.tensors, batch.tensors + batch.tensor_count,
                     [](const hvd_batch_tensor& one) { return one.input || one.output; });
}

}  // namespace

bool NcclBatch::reach() {
  int expected = kRunning;
  return state_.compare_exchange_strong(expected, kReached);
}

std::optional<Status> NcclBatch::poll() {
  if (state_.load() != kReached) return QueuedBatch::poll();
  // A broken communicator lets its stream come to its end.
  const Status status = channel_->check();
  if (status.ok()) return status;
  thread_.resume(shared_from_this());
  return std::nullopt;
}

void NcclThread::begin_abort() {
  aborting_.store(true);
  begin_end();
}

void NcclThread::end(Deadline until) {
  // Inside a call that waits for peers for ever it has no batch yet.
  const bool hangs = is_opening() && plan_.api.comm_init_rank_config == nullptr;
  stop(hangs ? Deadline::after_seconds(0) : until);
}

Status NcclThread::judge() const {
  if (!is_opening() || opened_by_.seconds_left() > -1) return {};
  return deadline_exceeded(cat(plan_.api.family,
                               ": not all ranks of a process set have come within ",
                               plan_.start_seconds, " s; HOROVOD_START_TIMEOUT may be raised"));
}

bool NcclThread::pause() { return LibraryThread::pause(kPause); }

// The first member makes it, and what keeps it from that is every member's sentence.
Result<abi::UniqueId> NcclThread::exchange_id(const std::string& key, int index, int size,
                                              const Deadline& deadline) {
  abi::UniqueId id{};
  if (index == 0) {
    const Status status = plan_.api.of_nccl(plan_.api.get_unique_id(&id), "ncclGetUniqueId");
    const std::string record = id_record(status, id);
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
  return parse_id_record({record, std::min(length, sizeof record)});
}

Status NcclThread::choose_device() {
  const NcclApi& api = plan_.api;
  int devices = 0;
  HVD_RETURN_IF_ERROR(api.of_device(api.get_device_count(&devices), "GetDeviceCount"));
  if (plan_.device >= devices) {
    return invalid_argument(
        cat("a tensor is on device ", plan_.device, ", and ", api.runtime, " finds ", devices));
  }
  if (devices == 0) return unavailable(cat(api.runtime, " finds no GPU"));
  const int device = plan_.device >= 0 ? plan_.device : plan_.local_rank % devices;
  return api.of_device(api.set_device(device), "SetDevice");
}

Status NcclThread::open_library() {
  const NcclApi& api = plan_.api;
  HVD_RETURN_IF_ERROR(choose_device());
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
bool NcclThread::goes_by_hosts(const hvd_batch& batch) const {
  if (!plan_.grid || batch.op != HVD_ALLREDUCE) return false;
  const bool asked = plan_.is_torus || (batch.tuning != nullptr && batch.tuning->drivers == 1);
  return asked && (batch.postscale == 1 || has_fractions(batch.dtype));
}

// All members come here at the same batch.
Status NcclThread::add_sub_communicators(Channel& channel, size_t number) {
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
Status NcclThread::enqueue(NcclBatch& batch, const hvd_batch& what) {
  const NcclApi& api = plan_.api;
  const size_t number = what.sequence % channels_.size();
  batch.channel_ = channels_[number];
  Channel& channel = *batch.channel_;
  plan_.memory.free_returned(api, channel.stream());
  const bool by_hosts = goes_by_hosts(what);
  if (by_hosts) HVD_RETURN_IF_ERROR(add_sub_communicators(channel, number));
  Collectives collectives(channel, plan_.place, what, by_hosts ? &*plan_.grid : nullptr);
  HVD_RETURN_IF_ERROR(collectives.enqueue([this] { return pause(); }));
  batch.kept_ = collectives.take_kept();
  HVD_RETURN_IF_ERROR(api.of_device(api.event_record(done_, channel.stream()), "EventRecord"));
  HVD_RETURN_IF_ERROR(api.of_device(api.stream_wait_event(notices_, done_, 0), "StreamWaitEvent"));
  auto notice =
      std::make_unique<StreamEndNotice>(StreamEndNotice{batch.shared_from_this(), event()});
  HVD_RETURN_IF_ERROR(
      api.of_device(api.launch_host_func(notices_, &on_reached, notice.get()), "LaunchHostFunc"));
  static_cast<void>(notice.release());
  return {};
}

Status NcclThread::look() {
  for (const auto& channel : channels_) HVD_RETURN_IF_ERROR(channel->check());
  const int error = plan_.api.event_query(done_);
  return error == abi::kNotReady ? Status() : plan_.api.of_device(error, "a batch");
}

void NcclThread::abort_library() {
  for (const auto& channel : channels_) channel->abort();
}

void NcclThread::close_library(bool failed, Batches) {
  if (failed || aborting_.load()) abort_library();
  for (const auto& channel : channels_) channel->close();
  if (notices_ != nullptr) {
    plan_.api.stream_synchronize(notices_);
    plan_.api.stream_destroy(notices_);
  }
  if (done_ != nullptr) plan_.api.event_destroy(done_);
}

NcclCommunicator::NcclCommunicator(Shared& shared, const ProcessSetDescriptor& set)
    : shared_(shared),
      name_(set.name("nccl")),
      place_{set.index_of(shared.config.rank), set.size()},
      grid_(grid_of(set.members, shared.config.rank, shared.host_of)) {}

NcclCommunicator::~NcclCommunicator() {
  if (thread_) thread_->end(LibraryThread::end_limit());
}

void NcclCommunicator::begin_abort() {
  if (thread_) thread_->begin_abort();
}

void NcclCommunicator::abort(Deadline until) {
  if (thread_) thread_->end(until);
}

Result<bool> NcclCommunicator::is_ready() {
  if (thread_) HVD_RETURN_IF_ERROR(thread_->judge());
  return true;
}

Result<std::shared_ptr<RunningBatch>> NcclCommunicator::start(const hvd_batch& batch) {
  if (!shared_.lacks.empty()) {
    return failed_precondition(cat("a tensor of GPUs needs rank ", shared_.config.rank, ", and ",
                                   shared_.lacks,
                                   "; leave that rank out of the tensor's process set"));
  }
  HVD_RETURN_IF_ERROR(choose_device(batch));
  if (!thread_) {
    thread_ = std::make_shared<NcclThread>(
        ThreadPlan{shared_.api, shared_.memory, shared_.host, name_, place_, grid_,
                   shared_.is_torus, shared_.device, shared_.config.local_rank, shared_.channels,
                   shared_.start_seconds, shared_.event});
    thread_->start();
  }
  auto queued = std::make_shared<NcclBatch>(*thread_, batch);
  thread_->add(queued);
  return std::shared_ptr<RunningBatch>(std::move(queued));
}

Status NcclCommunicator::choose_device(const hvd_batch& batch) {
  if (!has_own_tensor(batch)) return {};
  if (shared_.device < 0) shared_.device = batch.device;
  if (batch.device == shared_.device) return {};
  return invalid_argument(cat("a tensor is on device ", batch.device,
                              ", and this rank's others "
                              "on device ",
                              shared_.device, ": a rank uses one GPU"));
}

}  // namespace hvd::ops::nccl
