#include "ops/nccl/communicator.h"

#include <numeric>
#include <utility>

#include "base/text.h"

namespace hvd::ops::nccl {
namespace {

std::vector<int32_t> indexes_of(int32_t size) {
  std::vector<int32_t> indexes(static_cast<size_t>(size));
  std::iota(indexes.begin(), indexes.end(), 0);
  return indexes;
}

}  // namespace

NcclCommunicator::NcclCommunicator(Shared& shared, const ProcessSetDescriptor& set)
    : shared_(shared),
      set_(std::make_shared<NcclSet>(
          NcclSet{set.id,
                  set.name("nccl"),
                  set.members,
                  {set.index_of(shared.config.rank), set.size()},
                  grid_of(set.members, shared.config.rank, shared.host_of),
                  indexes_of(set.size())})) {}

NcclCommunicator::~NcclCommunicator() {
  if (shared_.thread) shared_.thread->drop(set_);
}

void NcclCommunicator::begin_abort() {
  if (shared_.thread) shared_.thread->begin_abort();
}

void NcclCommunicator::abort(Deadline until) {
  if (shared_.thread) shared_.thread->end(until);
}

Result<bool> NcclCommunicator::is_ready() {
  if (shared_.thread) HVD_RETURN_IF_ERROR(shared_.thread->judge());
  return true;
}

Result<std::shared_ptr<RunningBatch>> NcclCommunicator::start(const hvd_batch& batch) {
  if (!shared_.lacks.empty() && !is_trial(batch)) {
    return failed_precondition(cat("a tensor of GPUs needs rank ", shared_.config.rank, ", and ",
                                   shared_.lacks,
                                   "; leave that rank out of the tensor's process set"));
  }
  if (!shared_.thread) {
    if (shared_.opens_late && shared_.lacks.empty()) shared_.api = open_api();
    shared_.thread = std::make_shared<NcclThread>(ThreadPlan{
        shared_.api, shared_.memory, shared_.host, shared_.is_torus, batch.device,
        shared_.config.local_rank, shared_.start_seconds, shared_.hostname, shared_.event});
    shared_.thread->start();
  }
  auto queued = std::make_shared<NcclBatch>(shared_.thread, set_, batch);
  shared_.thread->add(queued);
  return std::shared_ptr<RunningBatch>(std::move(queued));
}

}  // namespace hvd::ops::nccl
