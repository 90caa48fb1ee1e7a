#include "launcher/state/ending_script.h"

#include <unistd.h>

#include <string_view>
#include <utility>

#include "base/proc_file.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/state/job_record.h"

namespace hvd::launcher {

bool has_ended(const EndingScript& script) { return start_of(script.pid) != script.start; }

std::optional<EndingScript> find_ending_script() {
  constexpr std::pair<std::string_view, const char*> kManagers[] = {
      {"slurmstepd", "the script of Slurm"},
      {"pbs_mom", "the script of PBS"},
      {"res", "the script of LSF"},
      {"sge_shepherd", "the script of Grid Engine"},
      {"oarexec", "the script of OAR"}};
  int64_t below = ::getpid();
  int64_t pid = ::getppid();
  for (; pid > 1; below = std::exchange(pid, parent_of(pid))) {
    const std::string name(trim(read_proc_file(cat("/proc/", pid, "/comm"))));
    for (const auto& [manager, script] : kManagers) {
      if (name == manager) return EndingScript{script, below, start_of(below)};
    }
  }
  // The first process of a container is an ancestor, except of a shell of `kubectl exec` or `docker exec`.
  const bool is_container = environment_variable("KUBERNETES_SERVICE_HOST").has_value() ||
                            ::access("/.dockerenv", F_OK) == 0 ||
                            ::access("/run/.containerenv", F_OK) == 0;
  if (pid != 1 || !is_container) return {};
  return EndingScript{"the command of this container", pid, start_of(pid)};
}

}  // namespace hvd::launcher
