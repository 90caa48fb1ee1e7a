// A process set under Gloo: a thread of its own that connects its members and then runs its batches
// one after another.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ops/common/backend.h"

namespace hvd::ops::gloo_backend {

class GlooCommunicator : public BackendCommunicator {
 public:
  using Connect = std::function<Result<std::shared_ptr<::gloo::Context>>()>;
  // `wake` may be called from any thread when a batch is over.
  GlooCommunicator(Connect connect, std::function<void()> wake);
  // Ends what runs.
  ~GlooCommunicator() override;
  Result<std::unique_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  // What waits for peers fails now. When it returns, no batch is touched any more.
  void cut();

 private:
  struct GlooQueuedBatch;
  class GlooRunningBatch;
  void work();
  Status run_guarded(const std::function<Status()>& body);

  const Connect connect_;
  const std::function<void()> wake_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<GlooQueuedBatch>> queue_;
  std::shared_ptr<::gloo::Context> context_;
  Status failure_;
  bool closing_ = false;
  bool running_ = false;  // a batch
  std::thread thread_;
};

}  // namespace hvd::ops::gloo_backend
