// Starts and ends a job of one rank with the libhorovod.so at a path, to test that its features work.
// For a child process that ends afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hvd::launcher {

// Longer than anything may take that works.
constexpr double kProbeSeconds = 60;

// The memory in which the test's sum is computed.
struct ProbeMemory {
  int32_t device = -1;           // HVD_CPU, or a GPU
  std::function<float*()> take;  // room for two, which the host can write and read; none: any
};

// Why not; empty when it works. With a sum: of one number, over the one rank.
std::string try_single_rank_world(const std::string& library, bool with_sum,
                                  const ProbeMemory& memory = {});

// Why hvd_capability denies it; empty when it does not.
std::string ask_capability(const std::string& library, const std::string& name);

}  // namespace hvd::launcher
