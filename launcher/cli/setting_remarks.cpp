#include "launcher/cli/setting_remarks.h"

#include <algorithm>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

std::vector<std::string> setting_remarks(const LaunchSettings& settings,
                                         const EnvironmentChoice& choice) {
  std::vector<std::string> remarks = about_misspelt_variables(
      overlay(overlay(environment(), choice.earlier_values), choice.values));
  for (const char* key : {"mpi_args", "binding_args"}) {
    if (!settings.table().is_set(key)) continue;
    remarks.push_back(cat(setting(key).flags, " has no effect without --mpi or --jsrun"));
  }
  const auto own = ineffective_names(choice, !settings.environment.no_torch_env);
  for (const std::string& name : own) {
    remarks.push_back(cat(name, " of -x or --env-file has no effect: horovodrun itself sets this ",
                          "variable for each rank"));
  }
  for (const std::string& name : unset_names(environment(), choice)) {
    if (std::ranges::find(own, name) != own.end()) continue;
    remarks.push_back(
        cat(name, " of -x or --env-file is not set here, so ranks get none of that name"));
  }
  return remarks;
}

}  // namespace hvd::launcher
