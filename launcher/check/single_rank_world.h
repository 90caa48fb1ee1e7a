// Starts and ends a single-process job with the libhorovod.so at a path, to test that its features
// work. For a child process that ends afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hvd::launcher {

// Time limit of a test; any successful test is faster.
constexpr double kProbeSeconds = 60;

// The memory in which the test computes its sum.
struct ProbeMemory {
  int32_t device = -1;  // HVD_CPU, or a GPU
  // Returns memory for two floats that the host can access; empty: any memory.
  std::function<float*()> take;
};

// Returns the error; empty on success. `with_sum`: also sums one number over the only rank.
std::string try_single_rank_world(const std::string& library, bool with_sum,
                                  const ProbeMemory& memory = {});

// Returns why hvd_capability denies the capability `name`; empty if it is available.
std::string ask_capability(const std::string& library, const std::string& name);

}  // namespace hvd::launcher
