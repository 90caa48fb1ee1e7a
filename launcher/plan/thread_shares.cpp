#include "launcher/plan/thread_shares.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostNames = 3;

std::string some_of(std::vector<std::string> names) {
  if (names.size() <= kMostNames) return join(names, ", ");
  const size_t more = names.size() - kMostNames;
  names.resize(kMostNames);
  return cat(join(names, ", "), " and ", more, " more");
}

}  // namespace

std::string describe_thread_shares(const std::vector<std::string>& hosts,
                                   const std::vector<uint32_t>& threads) {
  std::map<uint32_t, std::vector<std::string>> hosts_of;
  for (size_t host = 0; host < hosts.size(); ++host) {
    hosts_of[threads[host]].push_back(hosts[host]);
  }
  const bool is_everywhere = hosts_of.size() == 1;
  hosts_of.erase(0);
  if (hosts_of.empty()) return {};
  constexpr const char* kChange =
      "the host's cores divided by its ranks; give -x OMP_NUM_THREADS=N for another number, "
      "--no-omp-default for none";
  if (is_everywhere) {
    return fmt::format("each rank gets OMP_NUM_THREADS={}, {}", hosts_of.begin()->first, kChange);
  }
  std::vector<std::string> places;
  places.reserve(hosts_of.size());
  for (const auto& [number, names] : hosts_of) {
    places.push_back(fmt::format("{} on {}", number, some_of(names)));
  }
  return fmt::format("ranks get OMP_NUM_THREADS={}, {}", join(places, "; "), kChange);
}

std::string describe_binding(const std::vector<std::pair<std::string, std::string>>& hosts) {
  if (hosts.empty()) return {};
  std::vector<std::string> places;
  for (const auto& [name, cores] : hosts) places.push_back(cat(cores, " cores on ", name));
  return cat("ranks share ", some_of(std::move(places)),
             ": the launcher or the agent is bound, as by taskset, mpirun or srun; mpirun "
             "--bind-to none, or srun --cpu-bind=none, leaves all of them to the ranks");
}

}  // namespace hvd::launcher
