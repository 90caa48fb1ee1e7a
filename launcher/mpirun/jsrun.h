// Builds the command line of LSF's jsrun, and its file with the places of the ranks. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/cli/options.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Resources of one node of an LSF job.
struct LsfNode {
  int cores = 0;
  int threads_per_core = 1;
  int gpus = 0;
};

// From what csm_allocation_query, csm_node_attributes_query and lscpu say. An error names the
// program and what it does not say.
Result<LsfNode> parse_lsf_node(std::string_view allocation, std::string_view attributes,
                               std::string_view lscpu);

// jsrun's "explicit resource file": each rank gets its GPU's share of the processors. An error
// names a host that has more slots than GPUs.
Result<std::string> rankfile(const SlotPlan& plan, const LsfNode& node);

// Where --binding-args is not given, `rankfile_path` says where that file is. `hosts`: how many.
Result<std::vector<std::string>> jsrun_arguments(const Options& options, size_t hosts,
                                                 const std::string& rankfile_path);

}  // namespace hvd::launcher
