// The op plugin over MPI, for tensors in host memory. Links the code for Open MPI or for MPICH.
#include "mpi/api.h"
#include "ops/common/backend.h"
#include "ops/common/batch_memory.h"
#include "ops/common/op_plugin.h"
#include "ops/mpi/batch.h"
#include "ops/mpi/library.h"

namespace hvd::ops::mpi {
namespace {

// Higher than the score of the built-in operations: this backend is loaded only if the user has selected it.
constexpr int32_t kScore = 200;

// A process set's communicator in MPI. Batches start on the progress thread.
class MpiCommunicator : public BackendCommunicator {
 public:
  MpiCommunicator(World& world, std::shared_ptr<MpiComm> communicator)
      : world_(world), communicator_(std::move(communicator)) {}
  ~MpiCommunicator() override { world_.give_back(communicator_); }
  Result<bool> is_ready() override {
    const int state = communicator_->state.load();
    if (state < 0) return internal_error("MPI makes no communicator of a process set");
    return state == 1;
  }
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override {
    auto running = std::make_shared<MpiBatch>(world_, *communicator_, batch);
    running->start();
    return std::shared_ptr<RunningBatch>(std::move(running));
  }

 private:
  World& world_;
  const std::shared_ptr<MpiComm> communicator_;
};

class MpiBackend : public Backend {
 public:
  explicit MpiBackend(std::unique_ptr<World> world) : world_(std::move(world)) {
    sizes_[0] = world_->everyone()->size;
  }
  ~MpiBackend() override { drop_all(); }

  int32_t supports(const hvd_batch& batch) override {
    const auto size = sizes_.find(batch.process_set);
    if (batch.process_set != 0 && !world_->has_threads()) return 0;
    const int32_t members = size == sizes_.end() ? 1 : size->second;
    return is_known(batch) && can_run(batch, members) ? kScore : 0;
  }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) override {
    sizes_[set.id] = set.size();
    auto communicator =
        set.id == 0 || !world_->has_threads() ? world_->everyone() : world_->make(set.members);
    return std::unique_ptr<BackendCommunicator>(
        std::make_unique<MpiCommunicator>(*world_, std::move(communicator)));
  }
  void on_abort() override { world_->fail(); }
  const char* activity(const hvd_batch& batch) override { return activity_of<"MPI">(batch.op); }

 private:
  const std::unique_ptr<World> world_;
  std::map<int32_t, int32_t> sizes_;
};

struct Plugin {
  static constexpr const char* kName = "mpi";
  static constexpr int32_t kPriority = 50;
  static Status probe() { return hvd::mpi::judge_environment(); }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    HVD_ASSIGN_OR_RETURN(auto world, World::open(host, config));
    return std::unique_ptr<Backend>(std::make_unique<MpiBackend>(std::move(world)));
  }
};

}  // namespace
}  // namespace hvd::ops::mpi

HVD_PLUGIN_ENTRY(hvd::ops::BackendRecord<hvd::ops::mpi::Plugin>)
