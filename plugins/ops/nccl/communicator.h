// A process set's communicator in the NCCL backend, and the state that all communicators share: the thread
// that calls NCCL. Class Backend owns the communicators and this state. Lives on the progress thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/common/backend.h"
#include "ops/nccl/thread.h"

namespace hvd::ops::nccl {

// The state that all communicators of the backend share.
struct Shared {
  Result<NcclApi> api;
  const hvd_plugin_host& host;
  hvd_plugin_config config;
  Memory& memory;
  std::shared_ptr<WakeEvent> event;
  std::string lacks{};             // why this rank has no GPU; empty: it has one
  std::vector<int32_t> host_of{};  // by rank
  bool is_torus = false;
  // True: the first trial opens the libraries of NCCL and CUDA, so that the program can load its own versions first.
  bool opens_late = false;
  double start_seconds = 600;
  std::string hostname{};
  std::shared_ptr<NcclThread> thread{};  // null before the first batch
};

class NcclCommunicator : public BackendCommunicator {
 public:
  NcclCommunicator(Shared& shared, const ProcessSetDescriptor& set);
  ~NcclCommunicator() override;
  Result<bool> is_ready() override;
  // The first batch starts the thread and names this rank's GPU. No CUDA call precedes the first
  // batch. Returns an error on a rank without a GPU.
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  void begin_abort() override;
  void abort(Deadline until) override;
  // No event ends a blocking creation of a communicator: the progress thread must poll its time limit.
  bool wakes() const override { return !shared_.thread || !shared_.thread->is_blocked(); }

 private:
  Shared& shared_;
  const std::shared_ptr<NcclSet> set_;
};

}  // namespace hvd::ops::nccl
