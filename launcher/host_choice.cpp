#include "launcher/host_choice.h"

#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "launcher/allocation.h"
#include "launcher/hostfile.h"
#include "launcher/text_file.h"

namespace hvd::launcher {
namespace {

Result<std::optional<Allocation>> allocation(int slots_alone) {
  AllocationSources sources;
  sources.variable = environment_variable;
  sources.file = [](const std::string& path) -> std::optional<Result<std::string>> {
    if (::access(path.c_str(), F_OK) != 0) return {};
    return read_text_file(path, "the list of hosts");
  };
  return find_allocation(sources, slots_alone);
}

Result<std::vector<Host>> all_hosts(const Settings& settings) {
  const auto slots_alone = static_cast<int>(settings.integer("slots_per_host"));
  if (settings.is_set("hosts")) {
    auto hosts = parse_hosts(settings.text("hosts"), slots_alone);
    if (!hosts.ok()) return hosts.status().with_context("-H");
    return hosts;
  }
  if (settings.is_set("hostfile")) {
    const std::string path = settings.text("hostfile");
    HVD_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "hostfile"));
    return parse_hostfile(text, path == "-" ? "standard input" : path, slots_alone);
  }
  if (!settings.is_set("job")) {
    HVD_ASSIGN_OR_RETURN(const auto found, allocation(slots_alone));
    if (found) return found->hosts;
  }
  const std::string local = settings.is_set("num_proc") ? "num_proc" : "slots_per_host";
  if (settings.is_set(local)) {
    return std::vector<Host>{{"localhost", "", static_cast<int>(settings.integer(local))}};
  }
  return invalid_argument(
      "say how many ranks to start, with -np N, or where, with -H or -hostfile");
}

}  // namespace

Result<std::vector<Host>> choose_hosts(const Settings& settings) {
  HVD_ASSIGN_OR_RETURN(std::vector<Host> hosts, all_hosts(settings));
  if (!settings.is_set("nnodes")) return hosts;
  const auto wanted = static_cast<size_t>(settings.integer("nnodes"));
  if (wanted > hosts.size()) {
    return invalid_argument(cat("--nnodes ", wanted, " is more than the ", hosts.size(),
                                hosts.size() == 1 ? " host" : " hosts",
                                " there are; name more with -H"));
  }
  hosts.resize(wanted);
  return hosts;
}

}  // namespace hvd::launcher
