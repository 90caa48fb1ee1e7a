// Answers the launcher's requests for samples of the ranks. An answer with GPUs waits at most half a second for
// nvidia-smi or rocm-smi, if the host has one. The agent owns this object. Lives on the agent's loop.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/ranks/gpu_meter.h"
#include "launcher/agent/ranks/ranks.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class Samples {
 public:
  // `ranks` must outlive this object. `send` gets Sampled messages.
  Samples(net::EventLoop& loop, Ranks& ranks, std::function<void(const Message&)> send)
      : ranks_(ranks), send_(std::move(send)), gpus_(loop, [this] { answer_waiting(); }) {}

  void begin(const TakeSample& question);
  // Call when the ranks have ended: stops the queries of GPUs.
  void stop() { gpus_.stop(); }
  bool is_asking() const { return gpus_.is_asking(); }
  void on_reaped(pid_t pid, int status) { gpus_.on_reaped(pid, status); }
  Deadline deadline() const;
  void on_deadline();

 private:
  void answer(const TakeSample& question);
  void answer_waiting();

  Ranks& ranks_;
  const std::function<void(const Message&)> send_;
  GpuMeter gpus_;
  std::vector<TakeSample> waiting_;  // requests that wait for GPU readings
  Deadline limit_ = Deadline::never();
};

}  // namespace hvd::launcher
