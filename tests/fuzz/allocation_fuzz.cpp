#include <algorithm>

#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/allocation/allocation.h"

// Lines NAME=value, the environment; then an empty line and the content of every file.
HVD_FUZZ_TARGET(allocation) {
  using namespace hvd;
  const size_t gap = std::min(text.find("\n\n"), text.size());
  const std::vector<std::string> lines = split(text.substr(0, gap), '\n');
  const std::string file(gap < text.size() ? text.substr(gap + 2) : "");
  launcher::AllocationSources sources;
  sources.variable = [&](std::string_view name) -> std::optional<std::string> {
    for (const std::string& line : lines) {
      if (line.starts_with(cat(name, "="))) return line.substr(name.size() + 1);
    }
    return {};
  };
  sources.variables = [&] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& line : lines) {
      if (const size_t end = line.find('='); end != std::string::npos) {
        all.emplace_back(line.substr(0, end), line.substr(end + 1));
      }
    }
    return all;
  };
  sources.file = [&](const std::string& path) -> std::optional<Result<std::string>> {
    if (path == launcher::kOperatorHostfile && file.empty()) return {};
    return Result<std::string>(file);
  };
  const auto found = launcher::find_allocation(sources);
  HVD_CHECK(found.ok() || !found.status().message().empty());
  if (!found.ok() || !*found) return;
  HVD_CHECK(!(*found)->hosts.empty() || (*found)->warnings.size() == 1);
  for (const auto& host : (*found)->hosts) {
    HVD_CHECK(!host.name.empty() && host.name.front() != '-' && host.slots >= 1);
  }
}
