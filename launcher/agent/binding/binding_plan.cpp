#include "launcher/agent/binding/binding_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

using Places = std::vector<RankCpus>;

std::vector<int> numbers_of(const HostTopology& topology, int Core::*number) {
  std::set<int> numbers;
  for (const Core& core : topology.cores) numbers.insert(core.*number);
  return {numbers.begin(), numbers.end()};
}

struct PlaceMaker {
  const HostTopology& topology;
  const bool is_one_thread;

  template <typename Condition>
  RankCpus with(Condition condition) const {
    RankCpus place;
    std::set<int> nodes;
    for (const Core& core : topology.cores) {
      if (!condition(core)) continue;
      nodes.insert(core.node);
      const auto end = is_one_thread ? core.cpus.begin() + 1 : core.cpus.end();
      place.cpus.insert(place.cpus.end(), core.cpus.begin(), end);
    }
    std::ranges::sort(place.cpus);
    if (nodes.size() == 1) place.node = *nodes.begin();
    return place;
  }
};

bool has_any(const std::vector<int>& cpus, const Core& core) {
  return std::ranges::any_of(core.cpus,
                             [&](int cpu) { return std::ranges::binary_search(cpus, cpu); });
}

// Distributes the ranks over the objects, both in ascending order: neighbouring ranks are then near each other, and
// near the GPUs with their numbers. `each`: the number of ranks per object; 0: as even as possible. `has_several`: if
// there are more objects than ranks, a rank may get several.
Places spread(const PlaceMaker& maker, const std::vector<int>& objects, int Core::*number,
              size_t ranks, size_t each, bool has_several = false) {
  Places places;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t first = each != 0 ? rank / each : rank * objects.size() / ranks;
    const size_t next = (rank + 1) * objects.size() / ranks;
    const std::span own =
        std::span(objects).subspan(first, has_several ? std::max(next - first, size_t{1}) : 1);
    places.push_back(maker.with(
        [&](const Core& core) { return std::ranges::find(own, core.*number) != own.end(); }));
  }
  return places;
}

// In most virtual machines, the place of a GPU is unknown. Such a GPU is near all CPUs, so its rank is not bound.
Places near_gpus(const PlaceMaker& maker, const HostTopology& topology, size_t ranks) {
  Places places;
  const bool is_divided = numbers_of(topology, &Core::node).size() > 1;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<int>& near = topology.gpus[rank].cpus;
    RankCpus place = maker.with([&](const Core& core) { return has_any(near, core); });
    const bool is_known = !is_divided || place.node >= 0 ||
                          place.cpus != maker.with([](const Core&) { return true; }).cpus;
    if (!is_known) place.cpus.clear();
    place.gpu = static_cast<int>(rank);
    places.push_back(std::move(place));
  }
  return places;
}

using Group = std::vector<const Core*>;

// Returns the free cores in groups, fast kinds first. The cores of a group have the same kind and, unless `may_cross`,
// the same node.
std::vector<Group> groups_of(const HostTopology& topology, const std::set<int>& taken,
                             bool may_cross) {
  std::map<std::pair<int, int>, Group> groups;
  for (const Core& core : topology.cores) {
    if (taken.contains(core.cpus.front())) continue;
    groups[{-core.kind, may_cross ? 0 : core.node}].push_back(&core);
  }
  std::vector<Group> found;
  for (auto& [key, group] : groups) found.push_back(std::move(group));
  return found;
}

// Gives each rank the next cores of one group. Returns fewer places if the cores do not suffice.
Places take_cores(const PlaceMaker& maker, const BindingChoice& choice,
                  const HostTopology& topology, size_t ranks, const Excluded& excluded,
                  bool may_cross) {
  std::vector<Group> groups = groups_of(topology, excluded.cores, may_cross);
  const std::vector<int> nodes = numbers_of(topology, &Core::node);
  const size_t each = choice.cores_per_rank;
  Places places;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (excluded.ranks.contains(rank)) {
      places.emplace_back();
      continue;
    }
    const auto fits = [&](const Group& group) {
      if (group.size() < each) return false;
      if (choice.ranks_per_node == 0) return true;
      const size_t node = rank / choice.ranks_per_node;
      return node < nodes.size() && group.front()->node == nodes[node];
    };
    const auto group = std::ranges::find_if(groups, fits);
    if (group == groups.end()) break;
    const Group own(group->begin(), group->begin() + static_cast<ptrdiff_t>(each));
    group->erase(group->begin(), group->begin() + static_cast<ptrdiff_t>(each));
    places.push_back(
        maker.with([&](const Core& core) { return std::ranges::find(own, &core) != own.end(); }));
  }
  return places;
}

std::string count_of(size_t number, const char* noun) {
  return cat(number, " ", noun, number == 1 ? "" : "s");
}

Result<Places> plan_cores(const PlaceMaker& maker, const BindingChoice& choice,
                          const HostTopology& topology, size_t ranks, const Excluded& excluded) {
  // A rank's cores lie on one node if that is possible for all ranks.
  for (const bool may_cross : {false, true}) {
    if (may_cross && choice.ranks_per_node != 0) break;
    Places places = take_cores(maker, choice, topology, ranks, excluded, may_cross);
    if (places.size() == ranks) return places;
  }
  const size_t own = ranks - excluded.ranks.size();
  std::string sentence =
      cat("--bind-to core needs ", count_of(own * choice.cores_per_rank, "core"), " for ",
          count_of(own, "rank"), ", and the agent may use ", topology.cores.size());
  if (!excluded.cores.empty())
    sentence += cat(", of which running jobs of yours have ", excluded.cores.size());
  if (choice.ranks_per_node != 0)
    sentence += cat(", with ", choice.ranks_per_node, " ranks on each NUMA node");
  return failed_precondition(cat(sentence, "; run fewer ranks there, or leave the flag out"));
}

Result<Places> plan_lists(const BindingChoice& choice, const HostTopology& topology, size_t ranks) {
  std::vector<int> allowed;
  for (const Core& core : topology.cores)
    allowed.insert(allowed.end(), core.cpus.begin(), core.cpus.end());
  std::ranges::sort(allowed);
  Places places;
  for (size_t rank = 0; rank < ranks; ++rank) {
    RankCpus place{.cpus = choice.lists[rank % choice.lists.size()]};
    std::vector<int> outside;
    std::ranges::set_difference(place.cpus, allowed, std::back_inserter(outside));
    if (!outside.empty()) {
      return failed_precondition(cat("--cpu-list: CPU ", cpu_list(outside),
                                     " is not among the CPUs ", cpu_list(allowed),
                                     " that the agent may use; name some of these"));
    }
    std::set<int> nodes;
    for (const Core* core : cores_of(place, topology)) nodes.insert(core->node);
    if (nodes.size() == 1) place.node = *nodes.begin();
    places.push_back(std::move(place));
  }
  return places;
}

// On a host with one NUMA node, binds no rank. With as many GPUs as ranks, binds each rank to the CPUs near its GPU.
// Otherwise binds ranks to whole NUMA nodes, unless there is only one rank.
Places plan_auto(const PlaceMaker& maker, const HostTopology& topology, size_t ranks) {
  const std::vector<int> nodes = numbers_of(topology, &Core::node);
  if (nodes.size() < 2) return Places(ranks);
  if (topology.gpus.size() == ranks) return near_gpus(maker, topology, ranks);
  return ranks < 2 ? Places(ranks) : spread(maker, nodes, &Core::node, ranks, 0, true);
}

}  // namespace

Result<std::vector<RankCpus>> plan_binding(const BindingChoice& choice,
                                           const HostTopology& topology, size_t ranks,
                                           const Excluded& excluded) {
  using enum BindingObject;
  const PlaceMaker maker{topology, choice.is_one_thread};
  const std::vector<int> nodes = numbers_of(topology, &Core::node);
  if (topology.cores.empty() && choice.object != kNone && choice.object != kAuto)
    return unavailable("hwloc finds none of the CPUs that the agent may use; leave --bind-to out");
  switch (choice.object) {
    case kNone:
      return Places(ranks);
    case kAuto:
      return plan_auto(maker, topology, ranks);
    case kNuma:
      if (choice.ranks_per_node * nodes.size() >= ranks || choice.ranks_per_node == 0)
        return spread(maker, nodes, &Core::node, ranks, choice.ranks_per_node);
      return failed_precondition(cat("--map-by ppr:", choice.ranks_per_node,
                                     ":numa has places for ",
                                     count_of(choice.ranks_per_node * nodes.size(), "rank"), " on ",
                                     count_of(nodes.size(), "NUMA node"), ", and the host has ",
                                     ranks, "; give it fewer slots"));
    case kSocket:
      return spread(maker, numbers_of(topology, &Core::socket), &Core::socket, ranks, 0);
    case kGpu:
      if (topology.gpus.size() >= ranks) return near_gpus(maker, topology, ranks);
      return failed_precondition(cat("--bind-to gpu needs a GPU for each rank, and the host shows ",
                                     topology.gpus.size(), " for ", count_of(ranks, "rank"),
                                     "; give it fewer slots, or write --bind-to numa"));
    case kCore:
      return plan_cores(maker, choice, topology, ranks, excluded);
    case kCpuList:
      return plan_lists(choice, topology, ranks);
  }
  return Places(ranks);
}

std::vector<const Core*> cores_of(const RankCpus& place, const HostTopology& topology) {
  std::vector<const Core*> cores;
  for (const Core& core : topology.cores) {
    if (has_any(place.cpus, core)) cores.push_back(&core);
  }
  return cores;
}

std::vector<int> cores_of_ranks(const std::vector<RankCpus>& places, const HostTopology& topology,
                                double quota) {
  std::map<const Core*, int> users;
  for (const RankCpus& place : places) {
    for (const Core* core : cores_of(place, topology)) ++users[core];
  }
  std::vector<int> numbers;
  for (const RankCpus& place : places) {
    double share = 0;
    for (const Core* core : cores_of(place, topology)) share += 1.0 / users[core];
    share = std::min(share, quota / static_cast<double>(places.size()));
    // Shares such as 3 times 1/3 add up to a little less than 1.
    numbers.push_back(std::max(1, static_cast<int>(share + 1e-6)));
  }
  return numbers;
}

namespace {

// Returns the place in mpirun's notation: a letter B for each hardware thread of the rank, a dot for each other thread,
// slashes between cores, and brackets around sockets.
std::string draw(const RankCpus& place, const HostTopology& topology) {
  std::string drawn;
  for (const Core& core : topology.cores) {
    const bool is_new = &core == &topology.cores.front() || core.socket != (&core - 1)->socket;
    drawn += is_new ? (drawn.empty() ? "[" : "][") : "/";
    for (const int cpu : core.cpus)
      drawn += std::ranges::binary_search(place.cpus, cpu) ? 'B' : '.';
  }
  return drawn + "]";
}

}  // namespace

std::string describe(const RankCpus& place, const HostTopology& topology) {
  constexpr size_t kMostDrawn = 64;
  const bool is_bound = !place.cpus.empty();
  const std::vector<const Core*> cores = cores_of(place, topology);
  std::set<int> sockets;
  for (const Core* core : cores) sockets.insert(core->socket);
  std::vector<std::string> names;
  for (const int socket : sockets) names.push_back(cat(socket));
  std::string text = "not bound";
  if (is_bound) {
    text = cat("cpus ", cpu_list(place.cpus), " (", count_of(cores.size(), "core"), " of socket",
               names.size() == 1 ? " " : "s ", join(names, ", "), ")");
  }
  if (is_bound && place.node >= 0) text += cat(", memory of node ", place.node);
  if (place.gpu >= 0) {
    text += cat(", GPU ", place.gpu, " ", topology.gpus[static_cast<size_t>(place.gpu)].address);
  }
  if (!is_bound || topology.cores.size() > kMostDrawn) return text;
  return cat(text, " ", draw(place, topology));
}

}  // namespace hvd::launcher
