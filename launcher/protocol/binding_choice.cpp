#include "launcher/protocol/binding_choice.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr int kMostCpus = 8192;  // of a Linux kernel

Result<BindingObject> object_of(std::string_view word) {
  using enum BindingObject;
  constexpr std::array<std::pair<std::string_view, BindingObject>, 8> kObjects = {
      {{"none", kNone},
       {"auto", kAuto},
       {"numa", kNuma},
       {"socket", kSocket},
       {"package", kSocket},  // socket in Open MPI 5
       {"gpu", kGpu},
       {"node", kGpu},  // --numa-binding node of torchrun: the node of the rank's GPU
       {"core", kCore}}};
  for (const auto& [name, object] : kObjects) {
    if (name == word) return object;
  }
  return invalid_argument(
      cat("--bind-to ", printable(word),
          ": write none, auto, numa, socket, gpu or core, or --cpu-list for CPUs by number; for "
          "other objects put hwloc-bind or numactl before the program (docs/binding.md)"));
}

Status take_count(std::string_view flag, std::string_view text, size_t& count) {
  const auto number = parse_int(text);
  if (!number || *number < 1 || *number > kMostCpus) {
    return invalid_argument(
        cat(flag, " ", printable(text), " is not a number from 1 to ", kMostCpus));
  }
  count = static_cast<size_t>(*number);
  return {};
}

// Parses "slot" or "ppr:N:numa", each with an optional ":PE=N".
Status take_map(const std::string& text, BindingChoice& choice, bool& has_cores) {
  std::vector<std::string> words = split(to_lower(text), ':');
  if (words.back().starts_with("pe=")) {
    HVD_RETURN_IF_ERROR(take_count("PE=", words.back().substr(3), choice.cores_per_rank));
    has_cores = true;
    words.pop_back();
  }
  if (words.empty() || (words.size() == 1 && words[0] == "slot")) return {};
  if (words.size() == 3 && words[0] == "ppr" && words[2] == "numa") {
    return take_count("ppr:", words[1], choice.ranks_per_node);
  }
  return invalid_argument(cat("--map-by ", printable(text),
                              ": ranks fill the hosts in their order; write slot, slot:PE=N or "
                              "ppr:N:numa, and -H HOST:SLOTS,... for the ranks of each host"));
}

Result<std::vector<int>> parse_cpus(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string& part : split(text, ',')) {
    const std::string_view word = trim(part);
    const size_t dash = word.find('-');
    const auto first = parse_int(word.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(word.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) {
      return invalid_argument(cat("--cpu-list: '", printable(word),
                                  "' is neither a CPU nor a range; write 0-3,8 for all ranks of a "
                                  "host, or '0-3;4-7' for its first and second one"));
    }
    for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  std::ranges::sort(cpus);
  cpus.erase(std::unique(cpus.begin(), cpus.end()),
             cpus.end());  // clang 14 cannot compile ranges::unique
  return cpus;
}

// Refuses settings that exclude each other.
Status check(const BindingChoice& choice, bool has_cores) {
  using enum BindingObject;
  if (has_cores && choice.object != kCore) {
    return invalid_argument("--cpus-per-rank and PE=N count cores: they need --bind-to core");
  }
  if (choice.ranks_per_node != 0 && choice.object != kCore && choice.object != kNuma) {
    return invalid_argument("--map-by ppr:N:numa needs --bind-to numa or --bind-to core");
  }
  if (choice.is_one_thread && (choice.object == kNone || choice.object == kCpuList)) {
    return invalid_argument(
        "--no-smt chooses threads of the cores that another --bind-to than none finds");
  }
  return {};
}

}  // namespace

Result<BindingChoice> parse_binding(
    const std::function<std::string(std::string_view key)>& value_of) {
  using enum BindingObject;
  BindingChoice choice;
  bool has_cores = false;
  const std::string object = to_lower(trim(value_of("bind_to")));
  const std::string lists = value_of("cpu_list"), cores = value_of("cpus_per_rank");
  if (!value_of("map_by").empty()) {
    HVD_RETURN_IF_ERROR(take_map(value_of("map_by"), choice, has_cores));
  }
  if (!cores.empty()) {
    HVD_RETURN_IF_ERROR(take_count("--cpus-per-rank", cores, choice.cores_per_rank));
    has_cores = true;
  }
  choice.is_one_thread = value_of("no_smt") == "1";
  // As in mpirun, a number of cores implies "core", and a number of ranks per node implies "numa".
  if (has_cores) choice.object = kCore;
  if (!has_cores && choice.ranks_per_node != 0) choice.object = kNuma;
  if (!object.empty()) {
    HVD_ASSIGN_OR_RETURN(choice.object, object_of(object));
  }
  if (!lists.empty()) {
    if (!object.empty() || choice.object != kNone) {
      return invalid_argument("--cpu-list and --bind-to each choose the CPUs; give one of them");
    }
    choice.object = kCpuList;
    for (const std::string& list : split(lists, ';')) {
      HVD_ASSIGN_OR_RETURN(choice.lists.emplace_back(), parse_cpus(list));
    }
  }
  HVD_RETURN_IF_ERROR(check(choice, has_cores));
  return choice;
}

Environment without_binding(Environment environment) {
  for (const Setting& each : all_settings()) {
    if (std::string_view(each.section) != "binding") continue;
    std::erase_if(environment,
                  [&](const auto& variable) { return variable.first == each.variable; });
  }
  return environment;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (size_t at = 0; at < cpus.size();) {
    const size_t first = at++;
    while (at < cpus.size() && cpus[at] == cpus[at - 1] + 1) ++at;
    text += cat(text.empty() ? "" : ",", cpus[first]);
    if (at - first > 1) text += cat("-", cpus[at - 1]);
  }
  return text;
}

}  // namespace hvd::launcher
