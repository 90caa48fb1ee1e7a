#include "launcher/plan/thread_shares.h"

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
  std::vector<std::string> places;
  places.reserve(hosts_of.size());
  for (const auto& [number, names] : hosts_of) {
    places.push_back(cat(places.empty() ? "OMP_NUM_THREADS=" : "", number,
                         is_everywhere ? "" : cat(" on ", some_of(names))));
  }
  return cat(
      is_everywhere ? "each rank gets " : "ranks get ", join(places, "; "),
      ", the host's cores divided by its ranks; give -x OMP_NUM_THREADS=N for another number, "
      "--no-omp-default for none");
}

}  // namespace hvd::launcher
