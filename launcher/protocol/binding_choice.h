// The CPUs to which the user binds the ranks of a host: --bind-to and the flags beside it. The default, none, leaves a
// rank all CPUs of its agent. The launcher parses the settings to refuse wrong ones before it reaches a host; the agent
// parses the same settings from the job's variables. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/spawn.h"
#include "base/result.h"

namespace hvd::launcher {

// Among the versions in Prepared, the key for a line for each rank of the host, with --report-bindings.
inline constexpr const char* kBindings = "bindings";
// The key for a sentence about ranks that --bind-to did not bind as it was asked.
inline constexpr const char* kBindingRemark = "binding remark";

enum class BindingObject { kNone, kAuto, kNuma, kSocket, kGpu, kCore, kCpuList };

struct BindingChoice {
  BindingObject object = BindingObject::kNone;
  std::vector<std::vector<int>>
      lists{};  // --cpu-list: the CPUs of each local rank, used again in turn
  size_t cores_per_rank = 1;
  size_t ranks_per_node = 0;   // ppr:N:numa; 0: ranks fill the host evenly
  bool is_one_thread = false;  // --no-smt: one hardware thread of each core
};

// `value_of`: returns the value of a setting by its key, or an empty text if it is not set.
Result<BindingChoice> parse_binding(
    const std::function<std::string(std::string_view key)>& value_of);

// Returns the environment without the variables of these settings. Only the agent reads them; a horovodrun inside of a
// rank binds by flags of its own.
Environment without_binding(Environment environment);

// Returns "0-3,8" for the CPUs 0, 1, 2, 3 and 8, as the kernel writes them. `cpus` is in ascending order.
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace hvd::launcher
