// Builds the command line of LSF's jsrun, and its file with the places of the ranks. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/launch_options.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Resources of one node of an LSF job.
struct LsfNode {
  int cores = 0;
  int threads_per_core = 1;
  int gpus = 0;
};

// Parses the output of csm_allocation_query, csm_node_attributes_query and lscpu. An error names
// the program and the missing value.
Result<LsfNode> parse_lsf_node(std::string_view allocation, std::string_view attributes,
                               std::string_view lscpu);

// Returns jsrun's "explicit resource file": each rank gets the processors that belong to its GPU. An error names a host
// with more slots than GPUs.
Result<std::string> rankfile(const SlotPlan& plan, const LsfNode& node);

// Returns jsrun's command line. `rankfile_path`: the path of a file with rankfile(); unused with --binding-args.
// `hosts`: number of hosts.
Result<std::vector<std::string>> jsrun_arguments(const Options& options, size_t hosts,
                                                 const std::string& rankfile_path);

}  // namespace hvd::launcher
