#include "launcher/plan/same_machine.h"

#include <map>

#include "base/text.h"

namespace hvd::launcher {

std::vector<std::string> describe_same_machines(const std::vector<std::string>& hosts,
                                                const std::vector<std::string>& machines) {
  std::map<std::string, std::vector<std::string>> names;
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (!machines[host].empty()) names[machines[host]].push_back(hosts[host]);
  }
  std::vector<std::string> sentences;
  for (const auto& [machine, same] : names) {
    if (same.size() < 2) continue;
    sentences.push_back(
        cat("hosts ", join(same, " and "),
            " are one machine: its ranks have the same local ranks twice and would use the "
            "same GPUs; name it once, with the sum of the slots"));
  }
  return sentences;
}

}  // namespace hvd::launcher
