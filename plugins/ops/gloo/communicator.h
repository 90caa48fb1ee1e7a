// A process set's communicator in Gloo. Owns a thread that connects the members and then runs the set's
// batches one after another. Class Backend owns and calls the communicator.
#pragma once

#include <gloo/transport/device.h>

#include <memory>

#include "horovod/plugin.h"
#include "ops/common/library_thread.h"
#include "ops/common/process_set.h"

namespace hvd::ops::gloo_backend {

// The state shared by all communicators of the backend.
struct GlooWorld {
  const hvd_plugin_host& host;
  int32_t rank, size;
  double timeout;  // seconds that one operation may wait for a peer
  std::shared_ptr<::gloo::transport::Device> device;
  std::shared_ptr<WakeEvent> event;
};

class GlooThread;

class GlooCommunicator : public BackendCommunicator {
 public:
  GlooCommunicator(const GlooWorld& world, const ProcessSetDescriptor& set);
  // Ends the running batch.
  ~GlooCommunicator() override;
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  void begin_abort() override;
  void abort(Deadline until) override;
  bool wakes() const override { return true; }

 private:
  const std::shared_ptr<GlooThread> thread_;
};

}  // namespace hvd::ops::gloo_backend
