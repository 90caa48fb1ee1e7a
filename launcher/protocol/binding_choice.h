// The CPUs to which the user binds the ranks of a host: --bind-to and the related flags. By default (none), a rank may
// use all CPUs of its agent. The launcher parses the settings first, so that it refuses wrong ones before it reaches a
// host. The agent parses them again, from the job's variables. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/spawn.h"
#include "base/result.h"

namespace hvd::launcher {

// The key in Prepared::versions for the bindings of the host's ranks, one line for each rank (--report-bindings).
inline constexpr const char* kBindings = "bindings";
// The key for a sentence about ranks that are not bound as --bind-to requests.
inline constexpr const char* kBindingRemark = "binding remark";

enum class BindingObject { kNone, kAuto, kNuma, kSocket, kGpu, kCore, kCpuList };

struct BindingChoice {
  BindingObject object = BindingObject::kNone;
  std::vector<std::vector<int>>
      lists{};  // --cpu-list: the CPUs of each local rank; more ranks start again at the first list
  size_t cores_per_rank = 1;
  size_t ranks_per_node = 0;   // ppr:N:numa; 0: ranks fill the host evenly
  bool is_one_thread = false;  // --no-smt: one hardware thread of each core
};

// `value_of`: returns the value of a setting by its key, or an empty text if it is not set.
Result<BindingChoice> parse_binding(
    const std::function<std::string(std::string_view key)>& value_of);

// Returns the environment without the variables of these settings. Only the agent needs them: a horovodrun that a rank
// starts must not inherit them.
Environment without_binding(Environment environment);

// Returns "0-3,8" for the CPUs 0, 1, 2, 3 and 8, as the kernel writes them. `cpus` is in ascending order.
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace hvd::launcher
