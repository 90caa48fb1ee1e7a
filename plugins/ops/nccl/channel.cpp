#include "ops/nccl/channel.h"

#include <thread>
#include <utility>

#include "ops/nccl/reductions.h"

namespace hvd::ops::nccl {
namespace {

// Loss scaling makes ever new factors.
constexpr size_t kMostSums = 16;
// Most calls are through after so many questions, and a pause is longer than they take.
constexpr int kEager = 200;

}  // namespace

Status Channel::open(const abi::UniqueId& id, int index, int size, const Pause& pause) {
  int least = 0, greatest = 0;
  api_.device_get_stream_priority_range(&least, &greatest);
  HVD_RETURN_IF_ERROR(
      api_.of_device(api_.stream_create_with_priority(&stream_, abi::kStreamNonBlocking, greatest),
                     "StreamCreate"));
  return join(id, index, size, pause);
}

Status Channel::add_sub_communicator(SubCommunicator sub, const abi::UniqueId& id, int index,
                                     int size, const Pause& pause) {
  sub_communicators_[sub] = std::make_unique<Channel>(api_);
  sub_communicators_[sub]->stream_ = stream_;
  sub_communicators_[sub]->owns_stream_ = false;
  HVD_RETURN_IF_ERROR(sub_communicators_[sub]->join(id, index, size, pause));
  const MutexLock lock(mutex_);
  ++sub_communicators_open_;
  return {};
}

Status Channel::join(const abi::UniqueId& id, int index, int size, const Pause& pause) {
  int result = abi::kSuccess;
  if (api_.comm_init_rank_config != nullptr) {
    abi::Config config{sizeof config, abi::kConfigMagic, abi::kConfigVersion, 0};
    result = api_.comm_init_rank_config(&comm_, size, id, index, &config);
  } else {
    result = api_.comm_init_rank(&comm_, size, id, index);
  }
  HVD_RETURN_IF_ERROR(api_.of_nccl(result, "ncclCommInitRank", comm_));
  return settle(pause).with_context("ncclCommInitRank");
}

void Channel::close() {
  if (stream_ != nullptr) api_.stream_synchronize(stream_);
  for (const auto& sub : sub_communicators_) {
    if (sub != nullptr) sub->close();
  }
  bool was_over = false;
  {
    const MutexLock lock(mutex_);
    was_over = std::exchange(is_over_, true);
  }
  if (comm_ != nullptr && !was_over) {
    for (const auto& [what, sum] : sums_) api_.red_op_destroy(sum, comm_);
    api_.comm_destroy(comm_);
  }
  if (stream_ != nullptr && owns_stream_) api_.stream_destroy(stream_);
}

Status Channel::settle(const Pause& pause) {
  for (int asked = 0;; ++asked) {
    int state = abi::kSuccess;
    HVD_RETURN_IF_ERROR(
        api_.of_nccl(api_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError", comm_));
    if (state != abi::kInProgress) return api_.of_nccl(state, "the communicator", comm_);
    if (asked < kEager) {
      std::this_thread::yield();
    } else if (!pause()) {
      return aborted("NCCL was given up");
    }
  }
}

Status Channel::check() {
  const MutexLock lock(mutex_);
  if (is_over_) return aborted(api_.family + " was given up");
  for (int i = 0; i < sub_communicators_open_; ++i)
    HVD_RETURN_IF_ERROR(sub_communicators_[i]->check());
  int state = abi::kSuccess;
  const int result = api_.comm_get_async_error(comm_, &state);
  return api_.of_nccl(result == abi::kSuccess ? state : result, "the communicator", comm_);
}

void Channel::abort() {
  for (const auto& sub : sub_communicators_) {
    if (sub != nullptr) sub->abort();
  }
  {
    const MutexLock lock(mutex_);
    if (std::exchange(is_over_, true) || comm_ == nullptr) return;
  }
  api_.comm_abort(comm_);
}

Result<int> Channel::sum_times(double factor, int type) {
  const auto found = sums_.find({type, factor});
  if (found != sums_.end()) return found->second;
  if (sums_.size() == kMostSums) {
    for (const auto& [what, sum] : sums_) api_.red_op_destroy(sum, comm_);
    sums_.clear();
  }
  double scalar = 0;
  store_factor(type, factor, &scalar);
  int made = 0;
  HVD_RETURN_IF_ERROR(api_.of_nccl(
      api_.red_op_create_pre_mul_sum(&made, &scalar, type, abi::kScalarInHostMemory, comm_),
      "ncclRedOpCreatePreMulSum", comm_));
  sums_[{type, factor}] = made;
  return made;
}

}  // namespace hvd::ops::nccl
