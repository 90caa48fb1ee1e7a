#include "ops/nccl/channel.h"

#include <thread>

#include "base/clock.h"
#include "ops/nccl/reductions.h"

namespace hvd::ops::nccl {
namespace {

// Maximum number of custom reductions. Loss scaling changes the factor again and again.
constexpr size_t kMostSums = 16;

}  // namespace

Status Channel::open(const abi::UniqueId& id, int index, int size, const Pause& pause) {
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

Status Channel::add_sub_communicator(SubCommunicator sub, const abi::UniqueId& id, int index,
                                     int size, const Pause& pause) {
  sub_communicators_[sub] = std::make_unique<Channel>(api_, stream_);
  return sub_communicators_[sub]->open(id, index, size, pause);
}

void Channel::close() {
  for (const auto& sub : sub_communicators_) {
    if (sub != nullptr) sub->close();
  }
  if (comm_ == nullptr) return;
  for (const auto& [what, sum] : sums_) api_.red_op_destroy(sum, comm_);
  api_.comm_destroy(std::exchange(comm_, nullptr));
}

Status Channel::settle(const Pause& pause) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    int state = abi::kSuccess;
    HVD_RETURN_IF_ERROR(
        api_.of_nccl(api_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError", comm_));
    if (state != abi::kInProgress) return api_.of_nccl(state, "the communicator", comm_);
    const std::chrono::microseconds time = pause_after(Clock::now() - begin);
    if (time.count() == 0) {
      std::this_thread::yield();
    } else if (!pause(time)) {
      return aborted("NCCL was given up");
    }
  }
}

Status Channel::check() const {
  if (comm_ == nullptr) return aborted(api_.family + " was given up");
  for (const auto& sub : sub_communicators_) {
    if (sub != nullptr) HVD_RETURN_IF_ERROR(sub->check());
  }
  int state = abi::kSuccess;
  const int result = api_.comm_get_async_error(comm_, &state);
  return api_.of_nccl(result == abi::kSuccess ? state : result, "the communicator", comm_);
}

std::vector<abi::Comm*> Channel::give_up() {
  std::vector<abi::Comm*> given;
  for (const auto& sub : sub_communicators_) {
    if (sub == nullptr) continue;
    for (abi::Comm* comm : sub->give_up()) given.push_back(comm);
  }
  if (comm_ != nullptr) given.push_back(std::exchange(comm_, nullptr));
  return given;
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
