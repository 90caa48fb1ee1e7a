#include "ops/nccl/thread.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "base/machine_identity.h"
#include "base/mutex.h"
#include "base/operations/op_traits.h"
#include "base/plugin_record.h"
#include "base/settings.h"
#include "base/text.h"
#include "ops/nccl/device_record.h"

namespace hvd::ops::nccl {
namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr double kIdSlice = 1;
// The longest time limit of a trial. Meanwhile work of the process set continues in host memory, but work of other sets
// on this thread waits.
constexpr double kTrialSeconds = 120;
// Time limits for a stream to become idle after an abort, and for one wait before the device's error is checked
// again. Shorter than LibraryThread::end_limit.
constexpr int kIdleSeconds = 10;
constexpr std::chrono::milliseconds kQuestion{100};

bool has_fractions(int32_t dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
         dtype == HVD_FLOAT64;
}

// Runs as a host function at the end of a batch, where CUDA calls are not allowed. `argument` owns a reference to the
// batch.
void on_reached(void* argument) {
  const std::unique_ptr<std::shared_ptr<NcclBatch>> batch(
      static_cast<std::shared_ptr<NcclBatch>*>(argument));
  (*batch)->reach();
}

// A counter that other threads decrement. NcclThread's thread waits until it is 0.
class Countdown {
 public:
  explicit Countdown(size_t left) : left_(left) {}
  // Runs as a host function at the end of a stream. `argument` is a shared_ptr, which this function deletes.
  static void on_end(void* argument) {
    const std::unique_ptr<std::shared_ptr<Countdown>> countdown(
        static_cast<std::shared_ptr<Countdown>*>(argument));
    (*countdown)->reach();
  }
  void reach() {
    const MutexLock lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  bool wait(std::chrono::milliseconds time) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock.native(), time,
                             [this]() HVD_REQUIRES(mutex_) { return left_ == 0; });
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  size_t left_ HVD_GUARDED_BY(mutex_);
};

}  // namespace

// Aborts communicators, each on a separate thread. ncclCommAbort sets the flag that ends the kernels of its
// communicator, and then waits for them. On the one stream, these kernels may be queued after
// kernels of another communicator, whose flag must then be set too.
class NcclThread::Aborts {
 public:
  Aborts(const std::shared_ptr<NcclThread>& thread,
         const std::vector<std::shared_ptr<NcclSet>>& sets) {
    std::vector<abi::Comm*> comms;
    for (const auto& set : sets) {
      for (abi::Comm* comm : set->channel->give_up()) comms.push_back(comm);
    }
    calls_ = std::make_shared<Countdown>(comms.size());
    for (abi::Comm* comm : comms) {
      threads_.emplace_back([thread, comm, calls = calls_, device = thread->device_] {
        thread->api().set_device(device);
        thread->api().comm_abort(comm);
        calls->reach();
      });
    }
  }
  // Waits for all calls. Returns false if a call has not returned by the time limit; its thread then continues.
  bool end(const Deadline& limit) {
    bool has_ended = calls_->wait(std::chrono::milliseconds(0));
    while (!has_ended && !limit.passed()) has_ended = calls_->wait(kQuestion);
    for (std::thread& thread : threads_) has_ended ? thread.join() : thread.detach();
    threads_.clear();
    return has_ended;
  }

 private:
  std::shared_ptr<Countdown> calls_;
  std::vector<std::thread> threads_;
};

Result<bool> NcclBatch::test() {
  if (!is_reached_.load(std::memory_order_acquire)) return false;
  if (is_trial_) return true;
  HVD_RETURN_IF_ERROR(thread_->placed(set_->channel->check()));
  thread_->read_times(*this);
  return true;
}

void NcclBatch::reach() {
  reached_at_ = Clock::now();
  is_reached_.store(true, std::memory_order_release);
  thread_->wake();
}

void NcclBatch::finish() {
  if (!is_trial_) return;
  const hvd_batch_tensor& tensor = batch_.tensors[0];
  const auto size = static_cast<size_t>(tensor.count);
  std::string text = outcome_.message();
  text.resize(size);
  text.back() = '\0';
  text.copy(static_cast<char*>(tensor.output), size);
}

void NcclThread::drop(std::shared_ptr<NcclSet> set) {
  call([this, set = std::move(set)] {
    if (std::erase(sets_, set) > 0) close_apart(set);
    return Status();
  });
}

// Closes a communicator on a separate thread. ncclCommDestroy may wait for other members on this host, whose
// threads may first run batches of other sets with this rank.
void NcclThread::close_apart(const std::shared_ptr<NcclSet>& set) {
  std::erase_if(closings_, [](Closing& one) {
    if (one.is_over->load()) one.thread.join();
    return !one.thread.joinable();
  });
  auto is_over = std::make_shared<std::atomic<bool>>(false);
  std::thread thread([thread = self(), set, is_over] {
    if (thread->api().set_device(thread->device_) == 0) set->channel->close();
    is_over->store(true);
  });
  closings_.push_back({std::move(thread), std::move(is_over)});
}

void NcclThread::begin_abort() {
  aborting_.store(true);
  begin_end();
}

void NcclThread::end(Deadline until) {
  // A thread that hangs in the creation of a communicator has not started a batch.
  const bool has_batches = !is_blocked();
  if (stop(has_batches ? until : Deadline::after_seconds(0)) || !has_batches) return;
  if (is_silent_.exchange(true)) return;
  plan_.host.log(plan_.host.host, 4,
                 cat(plan_.api.ok() ? api().family : "NCCL",
                     " does not end: its thread hangs in the driver of the GPU, which may write to "
                     "the tensors of running batches until the process ends")
                     .c_str());
}

bool NcclThread::is_blocked() const {
  return plan_.api.ok() && api().comm_init_rank_config == nullptr &&
         created_by_.load() != Clock::time_point::max();
}

Status NcclThread::late() const {
  return deadline_exceeded(cat(plan_.api.ok() ? api().family : "NCCL",
                               ": not all ranks of a process set have come within ",
                               limit_seconds_.load(), " s; HOROVOD_START_TIMEOUT may be raised"));
}

Status NcclThread::judge() const {
  if (!is_blocked() || Clock::now() - std::chrono::seconds(1) < created_by_.load()) return {};
  return late();
}

// The first member creates the id. If the creation fails, every member gets its error.
Result<abi::UniqueId> NcclThread::exchange_id(const std::string& key, int index, int size,
                                              const Deadline& deadline) {
  abi::UniqueId id{};
  if (index == 0) {
    const Status status = api().of_nccl(api().get_unique_id(&id), "ncclGetUniqueId");
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
    if (!pause(kPause)) return aborted("NCCL was given up");
    if (deadline.seconds_left() <= 0) break;
    code = plan_.host.store_get(plan_.host.host, key.c_str(), record, sizeof record, &length,
                                std::min(kIdSlice, deadline.seconds_left()));
  }
  if (code != HVD_OK) {
    return Status(static_cast<Code>(code),
                  cat(api().family, ": the first rank of a process set has not come"));
  }
  return parse_id_record({record, std::min(length, sizeof record)});
}

Status NcclThread::choose_device() {
  const NcclApi& api = *plan_.api;
  int devices = 0;
  HVD_RETURN_IF_ERROR(api.of_device(api.get_device_count(&devices), "GetDeviceCount"));
  if (devices == 0) {
    return unavailable(cat(api.runtime,
                           " finds no GPU; nvidia-smi shows those of the host, and "
                           "CUDA_VISIBLE_DEVICES may hide them"));
  }
  if (plan_.device >= devices) {
    return invalid_argument(cat("a tensor is on device ", plan_.device, ", and ", api.runtime,
                                " finds ", devices, "; CUDA_VISIBLE_DEVICES may hide others"));
  }
  device_ = plan_.device == HVD_UNKNOWN_DEVICE ? plan_.local_rank % devices : plan_.device;
  return api.of_device(api.set_device(device_), "SetDevice");
}

Status NcclThread::check_device(const hvd_batch& what) const {
  if (what.device == HVD_UNKNOWN_DEVICE || what.device == device_) return {};
  return invalid_argument(cat("a tensor is on device ", what.device,
                              ", and this rank's others on device ", device_,
                              ": a rank uses one GPU; start one rank for each"));
}

Status NcclThread::placed(const Status& status) const {
  if (status.ok()) return status;
  const std::string host = plan_.hostname.empty() ? "" : cat("host ", printable(plan_.hostname));
  const std::string gpu = device_ < 0 ? "" : cat("GPU ", device_);
  const std::string place = cat(host, host.empty() || gpu.empty() ? "" : ", ", gpu);
  return place.empty() ? status : status.with_context(place);
}

Status NcclThread::open_library() {
  // The default timer slack of Linux would lengthen each pause by up to 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  return {};
}

Status NcclThread::open_device() {
  if (!plan_.api.ok()) return plan_.api.error();
  if (done_ != nullptr) return {};
  const NcclApi& api = *plan_.api;
  // While a program captures a graph in the default mode, a call like EventQuery of any thread fails, and
  // so does the capture.
  int mode = abi::kCaptureRelaxed;
  if (api.thread_exchange_stream_capture_mode != nullptr) {
    HVD_RETURN_IF_ERROR(api.of_device(api.thread_exchange_stream_capture_mode(&mode),
                                      "ThreadExchangeStreamCaptureMode"));
  }
  HVD_RETURN_IF_ERROR(choose_device());
  int least = 0, greatest = 0;
  api.device_get_stream_priority_range(&least, &greatest);
  HVD_RETURN_IF_ERROR(
      api.of_device(api.stream_create_with_priority(&stream_, abi::kStreamNonBlocking, greatest),
                    "StreamCreate"));
  HVD_RETURN_IF_ERROR(api.of_device(
      api.stream_create_with_priority(&notices_, abi::kStreamNonBlocking, 0), "StreamCreate"));
  if (ring_ == nullptr) ring_ = plan_.memory.take_ring(api, device_);
  HVD_ASSIGN_OR_RETURN(done_,
                       ring_->take(api));  // later queries of this event detect a failed device
  return {};
}

// All members call this at the same batch, also members without a usable GPU.
Status NcclThread::compare_members(const NcclSet& set, const Status& own,
                                   const Deadline& deadline) {
  const RankInSet place = set.place;
  DeviceRecord record;
  record.host = plan_.hostname;
  if (!own.ok()) {
    record.trouble = device_ < 0 ? own.message() : cat("GPU ", device_, ": ", own.message());
  } else {
    record.library = api().title();
    record.boot = boot_id();
    record.apart = environment_variable("NCCL_HOSTID").value_or("");
    record.uuid = api().uuid_of(device_);
    record.bus = api().bus_of(device_);
    record.device = cat(device_);
  }
  if (place.size == 1) return compare_devices({record}, set.members);
  const std::string text = record.text();
  std::vector<std::string> found;
  int code = HVD_DEADLINE_EXCEEDED;
  while (code == HVD_DEADLINE_EXCEEDED && deadline.seconds_left() > 0) {
    if (!pause(kPause)) return aborted("NCCL was given up");
    found.clear();
    code = exchange_records(plan_.host, cat(set.name, "/devices"), place.index, place.size, text,
                            set.indexes, std::min(kIdSlice, deadline.seconds_left()), &found);
  }
  if (code == HVD_DEADLINE_EXCEEDED) return late();
  if (code != HVD_OK || found.size() != set.members.size()) {
    return Status(code == HVD_OK ? Code::kInternal : static_cast<Code>(code),
                  "the ranks cannot exchange their GPUs through the job's store");
  }
  std::vector<DeviceRecord> records;
  for (const std::string& one : found) records.push_back(DeviceRecord::parse(one));
  return compare_devices(records, set.members);
}

Status NcclThread::open(const std::shared_ptr<NcclSet>& set) {
  const Deadline deadline = Deadline::after_seconds(plan_.start_seconds);
  const Status own = open_device();
  const Status compared = compare_members(*set, own, deadline);
  HVD_RETURN_IF_ERROR(placed(own));
  HVD_RETURN_IF_ERROR(compared);
  return open_channel(set, deadline);
}

Status NcclThread::open_channel(const std::shared_ptr<NcclSet>& set, const Deadline& deadline) {
  set->channel = std::make_unique<Channel>(api(), stream_);
  sets_.push_back(set);
  created_by_.store(deadline.time());
  const Status status = create(*set, deadline);
  created_by_.store(Clock::time_point::max());
  return status;
}

Status NcclThread::create(NcclSet& set, const Deadline& deadline) {
  HVD_ASSIGN_OR_RETURN(const abi::UniqueId id,
                       exchange_id(set.name, set.place.index, set.place.size, deadline));
  bool is_late = false;
  const Status opened =
      set.channel->open(id, set.place.index, set.place.size, [&](std::chrono::microseconds time) {
        is_late = deadline.seconds_left() <= 0;
        return pause(time) && !is_late;
      });
  return is_late ? late() : opened;
}

// A trial has the same result on all members, unless the store or NCCL fails on some of them.
Status NcclThread::try_set(const std::shared_ptr<NcclSet>& set) {
  limit_seconds_.store(std::min(plan_.start_seconds, kTrialSeconds));
  const Deadline deadline = Deadline::after_seconds(limit_seconds_.load());
  Status own = open_device();
  if (own.ok() && api().comm_init_rank_config == nullptr) {
    own = failed_precondition(cat(api().library, " is ", api().title(),
                                  ", and NCCL is chosen by itself from 2.14 on, whose start can be "
                                  "given up; HOROVOD_GPU_OPERATIONS=NCCL chooses it"));
  }
  Status status = compare_members(*set, own, deadline);
  const bool is_common = status.code() == Code::kUnavailable || status.ok();
  if (status.ok()) status = placed(open_channel(set, deadline));
  if (!status.ok() && set->channel != nullptr) {
    // The abort does not wait for peers, since the communicator has not run a kernel.
    Aborts(self(), {set}).end(Deadline::after_seconds(kIdleSeconds));
    set->channel.reset();
    std::erase(sets_, set);
  }
  limit_seconds_.store(plan_.start_seconds);
  if (set->place.index == 0 || !is_common) log_choice(*set, status);
  return status;
}

void NcclThread::log_choice(const NcclSet& set, const Status& status) const {
  const bool is_all = set.id == 0;
  const std::string what = cat("tensors of GPUs", is_all ? "" : cat(" in process set ", set.id));
  if (!status.ok()) {
    plan_.host.log(plan_.host.host, 3,
                   cat(what, " go through host memory: ", status.message()).c_str());
  } else {
    plan_.host.log(plan_.host.host, 2,
                   cat(what, " go through ", api().title(), ", ", api().library, ": each of ",
                       set.place.size, " ranks has a GPU of its own")
                       .c_str());
  }
}

// Integers with a factor get no hierarchical allreduce, since their average must be rounded once, at the end.
bool NcclThread::goes_by_hosts(const NcclSet& set, const hvd_batch& batch) const {
  if (!set.grid || batch.op != HVD_ALLREDUCE) return false;
  const bool asked = plan_.is_torus || (batch.tuning != nullptr && batch.tuning->drivers == 1);
  return asked && (batch.postscale == 1 || has_fractions(batch.dtype));
}

// All members call this at the same batch.
Status NcclThread::add_sub_communicators(NcclSet& set) {
  Channel& channel = *set.channel;
  if (channel.sub_communicator(Channel::kAcross) != nullptr) return {};
  const Grid& grid = *set.grid;
  const Deadline deadline = Deadline::after_seconds(plan_.start_seconds);
  const auto pause_on = [&](std::chrono::microseconds time) {
    return pause(time) && deadline.seconds_left() > 0;
  };
  HVD_ASSIGN_OR_RETURN(const abi::UniqueId inside, exchange_id(cat(set.name, "/host", grid.host),
                                                               grid.place, grid.places, deadline));
  HVD_RETURN_IF_ERROR(
      channel.add_sub_communicator(Channel::kInside, inside, grid.place, grid.places, pause_on));
  HVD_ASSIGN_OR_RETURN(const abi::UniqueId across, exchange_id(cat(set.name, "/place", grid.place),
                                                               grid.host, grid.hosts, deadline));
  return channel.add_sub_communicator(Channel::kAcross, across, grid.host, grid.hosts, pause_on);
}

Status NcclThread::add_alone(Channel& channel) {
  if (channel.sub_communicator(Channel::kAlone) != nullptr) return {};
  abi::UniqueId id{};
  HVD_RETURN_IF_ERROR(api().of_nccl(api().get_unique_id(&id), "ncclGetUniqueId"));
  return channel.add_sub_communicator(
      Channel::kAlone, id, 0, 1, [this](std::chrono::microseconds time) { return pause(time); });
}

Status NcclThread::enqueue(NcclBatch& batch, const hvd_batch& what) {
  if (batch.is_trial_) {
    batch.outcome_ = try_set(batch.set_);
    batch.is_reached_.store(true, std::memory_order_release);
    return {};
  }
  if (batch.set_->channel == nullptr) HVD_RETURN_IF_ERROR(open(batch.set_));
  return placed(run(batch, what));
}

// Enqueues a batch. The stream continues with the next batch while the driver reports the end of this batch.
Status NcclThread::run(NcclBatch& batch, const hvd_batch& what) {
  const NcclApi& api = *plan_.api;
  NcclSet& set = *batch.set_;
  HVD_RETURN_IF_ERROR(check_device(what));
  plan_.memory.free_returned(api, stream_);
  const bool by_hosts = goes_by_hosts(set, what);
  if (by_hosts) HVD_RETURN_IF_ERROR(add_sub_communicators(set));
  if (multiplies_after(what, set.place.size, api.red_op_create_pre_mul_sum != nullptr)) {
    HVD_RETURN_IF_ERROR(add_alone(*set.channel));
  }
  Collectives collectives(*set.channel, plan_.memory, set.place, what,
                          by_hosts ? &*set.grid : nullptr);
  const std::string_view name = traits_of(what.op).name;
  HVD_ASSIGN_OR_RETURN(batch.began_, ring_->take(api));
  HVD_RETURN_IF_ERROR(collectives.enqueue(
      [this](std::chrono::microseconds time) { return pause(time); }, batch.began_));
  batch.kept_ = collectives.take_kept();
  if (collectives.has_spilled() && !std::exchange(has_spilled_, true)) {
    plan_.host.log(plan_.host.host, 3,
                   cat("GPU ", device_, " has no room for an output of ", name,
                       ", which goes through pinned host memory, and slowly: let the program leave "
                       "some memory free, by a smaller batch or torch.cuda.empty_cache()")
                       .c_str());
  }
  HVD_ASSIGN_OR_RETURN(batch.ended_, ring_->take(api));
  done_ = batch.ended_;
  HVD_RETURN_IF_ERROR(api.of_device(api.event_record(done_, stream_), "EventRecord"));
  HVD_RETURN_IF_ERROR(api.of_device(api.stream_wait_event(notices_, done_, 0), "StreamWaitEvent"));
  auto notice = std::make_unique<std::shared_ptr<NcclBatch>>(batch.shared_from_this());
  HVD_RETURN_IF_ERROR(
      api.of_device(api.launch_host_func(notices_, &on_reached, notice.get()), "LaunchHostFunc"));
  static_cast<void>(notice.release());
  if (!batch.is_ordered_) return {};
  batch.event_.store(done_, std::memory_order_release);
  this->event()->ring();
  return {};
}

// A batch ends at the time at which its host function ran: in a long job, the device's clock would drift from the
// host's clock. Does not read the hvd_batch, which may no longer exist if the job has abandoned this thread.
void NcclThread::read_times(NcclBatch& batch) {
  float milliseconds = 0;
  const bool is_known = api().event_elapsed_time != nullptr &&
                        api().event_elapsed_time(&milliseconds, batch.began_, batch.ended_) == 0;
  if (is_known) {
    const std::chrono::duration<double, std::milli> took(std::max(milliseconds, 0.0F));
    batch.times_ = {batch.reached_at_ - std::chrono::duration_cast<Clock::duration>(took),
                    batch.reached_at_};
  }
  ring_->give(batch.began_);
  ring_->give(batch.ended_);
}

Status NcclThread::look() {
  for (const auto& set : sets_) HVD_RETURN_IF_ERROR(placed(set->channel->check()));
  if (done_ == nullptr) return {};
  const int error = api().event_query(done_);
  return error == abi::kNotReady ? Status() : placed(api().of_device(error, "a batch"));
}

void NcclThread::abort_library() {
  const Deadline limit = Deadline::after_seconds(kIdleSeconds);
  Aborts aborts(self(), sets_);
  wait_for_idle_stream(limit);
  if (aborts.end(limit) || is_silent_.load()) return;
  plan_.host.log(plan_.host.host, 3,
                 cat(api().family, " has not ended its communicators ", kIdleSeconds,
                     " s after their abort: they stay until the process ends")
                     .c_str());
}

// Waits after an abort, since an aborted kernel may write to its batch's memory until the stream is idle.
void NcclThread::wait_for_idle_stream(const Deadline& limit) {
  if (stream_ == nullptr || is_silent_.load()) return;
  const NcclApi& api = *plan_.api;
  const auto end = std::make_shared<Countdown>(1);
  auto argument = std::make_unique<std::shared_ptr<Countdown>>(end);
  // If the call fails, the device has an error and runs no kernel.
  if (api.launch_host_func(stream_, &Countdown::on_end, argument.get()) != 0) return;
  static_cast<void>(argument.release());
  while (!end->wait(kQuestion)) {
    const int state = done_ == nullptr ? abi::kNotReady : api.event_query(done_);
    if (state != 0 && state != abi::kNotReady) return;
    if (!limit.passed()) continue;
    if (is_silent_.exchange(true)) return;  // end() has abandoned the thread
    plan_.host.log(
        plan_.host.host, 4,
        cat("GPU ", device_, " does not answer: it still runs a batch ", kIdleSeconds, " s after ",
            api.family, " was aborted, and may write to the batch's tensors")
            .c_str());
    return;
  }
}

void NcclThread::close_library(bool failed, Batches) {
  if (!plan_.api.ok()) return;
  const NcclApi& api = *plan_.api;
  if (failed || aborting_.load()) abort_library();
  // After a failure, other members may never close the removed sets' communicators.
  const bool waits = !failed && !aborting_.load() && !is_silent_.load();
  if (!waits) {
    for (Closing& closing : std::exchange(closings_, {})) closing.thread.detach();
  }
  if (is_silent_.load()) return;  // a call would wait forever
  if (stream_ != nullptr) api.stream_synchronize(stream_);
  // Close in the order of the sets' first batches, which is equal on all members.
  for (const auto& set : sets_) set->channel->close();
  for (Closing& closing : closings_) closing.thread.join();
  if (notices_ != nullptr) {
    api.stream_synchronize(notices_);
    api.stream_destroy(notices_);
  }
  if (stream_ != nullptr) api.stream_destroy(stream_);
  if (ring_ != nullptr) plan_.memory.give_ring(ring_);
}

}  // namespace hvd::ops::nccl
