// Reads the process group from the variables of torchrun and similar launchers. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace hvd::bootstrap {

struct ProcessGroup {
  int32_t rank = 0, size = 1;
  int32_t local_rank = -1, local_size = -1;  // -1: unknown
  std::string address;                       // MASTER_ADDR
  uint16_t port = 0;                         // MASTER_PORT
  std::string run;                           // TORCHELASTIC_RUN_ID, or empty

  bool has_one_host() const { return local_size == size; }
  // Returns text that differs between concurrent process groups.
  std::string name() const;
};

using Variables = std::function<std::optional<std::string>(const char* name)>;

// kFailedPrecondition: RANK and WORLD_SIZE are not set. The error names the variable that is missing or wrong.
Result<ProcessGroup> process_group_of(const Variables& variables);

// Ports at which rank 0 may listen, in order of preference. Never MASTER_PORT.
constexpr int kGroupPorts = 4;
// `first`, `last`: bounds of HOROVOD_PORT_RANGE. If `first` is 0, the range is 20000 to 31999.
uint16_t port_of_group(const ProcessGroup& group, uint16_t first, uint16_t last, int attempt);

}  // namespace hvd::bootstrap
