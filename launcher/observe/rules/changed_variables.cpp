#include "launcher/observe/rules/changed_variables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "launcher/output/line_folder.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

// Maximum number of groups of ranks that are described; further groups are only counted.
constexpr size_t kMostDescribed = 3;

// Returns the value in the rank's program, which is `given` if the launcher's value has not changed; empty: no value.
std::string value_in(const RankRun& rank, std::string_view name, const std::string& given) {
  const auto change = std::ranges::find(rank.changes(), name, &VariableChange::name);
  return change == rank.changes().end() ? given : change->found;
}

// The launcher's address of rank 0's host, in place of its text: it may have several addresses, of which each host gets
// one that it reaches.
constexpr std::string_view kGiven = "given";

std::set<std::string, std::less<>> given_addresses(const HostTable& hosts) {
  std::set<std::string, std::less<>> addresses;
  for (const HostRun& host : hosts.hosts())
    addresses.emplace(value_of(host.order().environment, "MASTER_ADDR"));
  return addresses;
}

bool are_distinct(const std::vector<std::string>& values) {
  return std::set(values.begin(), values.end()).size() == values.size();
}

// Returns whether some of these ranks lack this variable, but not all of them.
bool some_lack(const std::vector<const RankRun*>& ranks, std::string_view name) {
  const auto number = std::ranges::count_if(
      ranks, [&](const RankRun* rank) { return value_in(*rank, name, "given").empty(); });
  return number != 0 && number != std::ssize(ranks);
}

std::vector<const RankRun*> all_ranks(const HostTable& hosts) {
  std::vector<const RankRun*> ranks;
  for (const RankRun& rank : hosts.ranks()) ranks.push_back(&rank);
  return ranks;
}

// Returns whether a rank with these variables needs no other rank, as an evaluation beside a training.
bool is_alone(std::string_view rank, std::string_view size) {
  return (rank.empty() && size.empty()) || (rank == "0" && size == "1");
}

// Ranks of several hosts do not meet at an address like localhost.
bool is_of_one_host(std::string_view address) {
  return address == "localhost" || address == "::1" || address == "0.0.0.0" ||
         address.starts_with("127.");
}

// Returns the MASTER_ADDR of a rank: equal texts for addresses of one host.
std::string address_in(const RankRun& rank, const std::set<std::string, std::less<>>& given) {
  std::string address = value_in(rank, "MASTER_ADDR", std::string(kGiven));
  const bool is_local = is_of_one_host(address);
  if (given.contains(address) || (is_local && std::ranges::any_of(given, is_of_one_host)))
    return std::string(kGiven);
  return is_local ? cat("localhost of ", rank.slot().host) : address;
}

// A script may give each rank of a host its own GPU, which then has LOCAL_RANK 0.
bool are_local_ranks_usable(const HostTable& hosts) {
  if (some_lack(all_ranks(hosts), "LOCAL_RANK")) return false;
  std::map<int, std::vector<std::string>> of_hosts;
  for (const RankRun& rank : hosts.ranks())
    of_hosts[rank.slot().host].push_back(value_in(rank, "LOCAL_RANK", cat(rank.slot().local_rank)));
  return std::ranges::all_of(of_hosts, [](const auto& each) {
    const std::vector<std::string>& values = each.second;
    return are_distinct(values) || std::ranges::count(values, values.front()) == std::ssize(values);
  });
}

std::string text_of_change(const VariableChange& change) {
  return cat(change.found.empty() ? cat("no ", printable(change.name))
                                  : cat(printable(change.name), "=", printable(change.found)),
             " (from the launcher: ", printable(change.given), ")");
}

}  // namespace

bool makes_whole_worlds(const HostTable& hosts) {
  const auto given = given_addresses(hosts);
  std::vector<const RankRun*> members;
  // The values of RANK in each world. The key of a world is its WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
  std::map<std::vector<std::string>, std::vector<std::string>> worlds;
  for (const RankRun& rank : hosts.ranks()) {
    if (!rank.knows_changes()) return true;  // nothing is known to be wrong
    const std::string number = value_in(rank, "RANK", cat(rank.number()));
    const std::string size = value_in(rank, "WORLD_SIZE", cat(hosts.size()));
    if (hosts.size() > 1 && is_alone(number, size)) continue;
    members.push_back(&rank);
    worlds[{size, address_in(rank, given), value_in(rank, "MASTER_PORT", "given")}].push_back(
        number);
  }
  for (const std::string_view name : kWorldVariables) {
    if (name != "LOCAL_RANK" && some_lack(members, name)) return false;
  }
  if (worlds.size() == 1 && std::ssize(members) == std::ssize(hosts.ranks())) {
    const std::vector<std::string>& ranks = worlds.begin()->second;
    return are_distinct(ranks) || ranks.front().empty();
  }
  return std::ranges::all_of(worlds, [](const auto& each) {
    return are_distinct(each.second) && each.first.front() == cat(each.second.size());
  });
}

std::string changed_variables(const HostTable& hosts) {
  const bool is_known = std::ranges::all_of(hosts.ranks(), &RankRun::knows_changes);
  if (!is_known || (makes_whole_worlds(hosts) && are_local_ranks_usable(hosts))) return {};
  std::map<std::string, std::vector<int>> ranks_with;
  std::set<std::string> names;
  for (const RankRun& rank : hosts.ranks()) {
    std::vector<std::string> changes;
    for (const VariableChange& change : rank.changes()) {
      changes.push_back(text_of_change(change));
      names.insert(printable(change.name));
    }
    if (!changes.empty()) ranks_with[join(changes, " and ")].push_back(rank.number());
  }
  if (ranks_with.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [changes, ranks] : ranks_with) {
    if (parts.size() < kMostDescribed)
      parts.push_back(cat(ranks_on_hosts(ranks, hosts.host_names()), " began with ", changes));
  }
  if (ranks_with.size() > kMostDescribed)
    parts.push_back(cat(ranks_with.size() - kMostDescribed, " more differences"));
  return cat(join(parts, ", "), ": remove what sets or unsets ",
             join(std::vector<std::string>(names.begin(), names.end()), " and "),
             " there, for example a script, a wrapper or the shell's startup file");
}

}  // namespace hvd::launcher
