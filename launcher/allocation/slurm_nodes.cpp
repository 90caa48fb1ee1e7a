#include "launcher/allocation/slurm_nodes.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/names/name_ranges.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/plan/hosts.h"
#include "launcher/spawn/local_program.h"

namespace hvd::launcher {
namespace {

constexpr double kAnswerSeconds = 20;
// The limit of one resource on a node, so that sums do not overflow.
constexpr int64_t kMostUnits = int64_t{1} << 50;

// Splits "gpu:a100:2(IDX:0-1),shard:8" at commas outside parentheses. A resource without device
// files has its number in parentheses: "fan(CNT:8)" becomes "fan:8".
std::vector<std::string> entries_of(std::string_view resources) {
  constexpr std::string_view kCount = "(CNT:";
  std::vector<std::string> entries(1);
  int depth = 0;
  for (size_t i = 0; i < resources.size(); ++i) {
    const char c = resources[i];
    if (c == '(' && depth == 0 && resources.substr(i).starts_with(kCount)) {
      const std::string_view rest = resources.substr(i + kCount.size());
      entries.back() += cat(":", rest.substr(0, rest.find_first_not_of("0123456789")));
    }
    if (c == '(') ++depth;
    if (depth == 0 && c == ',') {
      entries.emplace_back();
    } else if (depth == 0) {
      entries.back() += c;
    }
    if (c == ')') --depth;
  }
  return entries;
}

// An entry like "gpu:a100:2", "gpu:2" or "gpu".
struct Resource {
  explicit Resource(const std::string& entry) {
    const size_t colon = entry.rfind(':');
    const auto number = colon == std::string::npos
                            ? std::nullopt
                            : parse_int(std::string_view(entry).substr(colon + 1));
    kind = number ? entry.substr(0, colon) : entry;
    count = std::clamp<int64_t>(number.value_or(1), 0, kMostUnits);
  }
  std::string name() const { return kind.substr(0, kind.find(':')); }
  bool has_type() const { return kind.find(':') != std::string::npos; }

  std::string kind;  // name, or name and type
  int64_t count = 1;
};

// The facts about a job, or about a component of a job, while its lines are parsed.
struct Block {
  struct Line {
    std::string_view names;
    std::string_view resources;
    std::string_view cpus;  // "0-3,8"
  };
  std::vector<Line> lines;
  std::string_view all;  // the names of all nodes
  std::string_view state;
  std::set<std::string> untyped;  // names that the job requested without a type
  bool is_exclusive = false;      // the job has all resources of its nodes
  bool is_of_job = true;          // false: the block is about another task of the job's array
  int component = -1;
};

// Takes the resources without indices, and omits empty entries. If the job requested a resource without a
// type, srun refuses a step that names types; if the job has complete nodes, srun refuses a step without
// types.
void take_resources(std::string_view resources, const std::set<std::string>& untyped,
                    SlurmNode& node) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const std::string& entry : entries_of(resources)) {
    if (entry.empty() || entry == "(null)") continue;
    const Resource resource(entry);
    if (resource.count == 0) continue;
    if (resource.name() == "gpu") {
      node.gpus += static_cast<int>(std::min<int64_t>(resource.count, kMaxNames));
    }
    const std::string kind = untyped.contains(resource.name()) ? resource.name() : resource.kind;
    const auto same = std::find_if(counts.begin(), counts.end(),
                                   [&](const auto& each) { return each.first == kind; });
    if (same != counts.end()) {
      same->second += resource.count;
    } else {
      counts.emplace_back(kind, resource.count);
    }
  }
  for (const auto& [kind, count] : counts) {
    node.resources += cat(node.resources.empty() ? "" : ",", kind, ":", count);
  }
}

// Parses "gres:gpu:4,gres:shard:2" of TresPerNode=, TresPerJob=, TresPerTask= or TresPerSocket=; Slurm since 23.02
// prints "gres/gpu:4".
void take_request(std::string_view request, std::set<std::string>& untyped) {
  for (std::string& entry : entries_of(request)) {
    if (entry.starts_with("gres:") || entry.starts_with("gres/")) entry.erase(0, 5);
    const Resource resource(entry);
    if (!resource.has_type()) untyped.insert(resource.name());
  }
}

std::string_view value_in(std::string_view word, std::string_view key) {
  return word.starts_with(key) ? word.substr(key.size()) : std::string_view();
}

void take_line_of_job(const std::vector<std::string_view>& words, std::string_view job,
                      Block& block) {
  Block::Line line;
  // The user's words, for example arguments of the script, may look like fields, but never begin a line.
  const std::string_view first = words.empty() ? std::string_view() : words.front();
  if (first.starts_with("JobId=")) block.is_of_job = value_in(first, "JobId=") == job;
  if (const auto state = value_in(first, "JobState="); !state.empty()) block.state = state;
  if (first == "OverSubscribe=NO") block.is_exclusive = true;
  if (const auto value = value_in(first, "NodeList="); !value.empty()) block.all = value;
  // A line about one node, or about equal nodes, begins with their names; JOB_GRES= describes the complete job.
  line.names = value_in(first, "Nodes=");
  for (const std::string_view word : words) {
    if (value_in(word, "HetJobId=") == job) block.is_of_job = true;
    if (const auto offset = parse_int(value_in(word, "HetJobOffset="))) {
      block.component = static_cast<int>(std::clamp<int64_t>(*offset, 0, kMaxNames));
    }
    if (const auto value = value_in(word, "GRES="); !value.empty()) line.resources = value;
    if (const auto value = value_in(word, "CPU_IDs="); !value.empty()) line.cpus = value;
    if (word.starts_with("TresPer")) take_request(word.substr(word.find('=') + 1), block.untyped);
  }
  if (!line.names.empty()) block.lines.push_back(line);
}

bool has_nodes(std::string_view state) {
  return state.empty() || state == "RUNNING" || state == "COMPLETING" || state == "CONFIGURING" ||
         state == "SUSPENDED" || state == "RESIZING";
}

// Returns the number of CPUs in "0-3,8", or 0.
int count_of(std::string_view list) {
  int64_t count = 0;
  for (const std::string& part : split(list, ',')) {
    const size_t dash = part.find('-');
    const auto first = parse_int(std::string_view(part).substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : parse_int(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxSlotsPerHost) return 0;
    count += *last - *first + 1;
  }
  return static_cast<int>(std::min<int64_t>(count, kMaxSlotsPerHost));
}

Status add_nodes(const Block& block, std::vector<SlurmNode>& nodes) {
  if (!block.is_of_job) return {};
  if (!has_nodes(block.state)) {
    return failed_precondition(cat("scontrol calls it ", printable(block.state)));
  }
  const std::set<std::string> untyped =
      block.is_exclusive ? std::set<std::string>() : block.untyped;
  std::set<std::string> known;
  const auto add = [&](std::string_view list, std::string_view resources, int cpus) -> Status {
    if (list.empty() || list == "(null)") return {};
    for (const std::string_view part : split_outside_brackets(list)) {
      auto names = expand_names(part);
      if (!names.ok()) return names.status().with_context("scontrol show job: nodes");
      for (std::string& name : *names) {
        if (!known.insert(name).second) continue;
        if (nodes.size() > kMaxNames) {
          return invalid_argument("scontrol show job names too many nodes");
        }
        SlurmNode node{std::move(name), "", 0, block.component, cpus};
        take_resources(resources, untyped, node);
        nodes.push_back(std::move(node));
      }
    }
    return {};
  };
  for (const Block::Line& line : block.lines)
    HVD_RETURN_IF_ERROR(add(line.names, line.resources, count_of(line.cpus)));
  // A node that joined the running job has no line of its own and no generic resources (GRES): Slurm does not add nodes
  // to a job that has GRES.
  return add(block.all, "", 0);
}

}  // namespace

Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text, std::string_view job) {
  std::vector<SlurmNode> nodes;
  Block block;
  while (!text.empty()) {
    const auto words = words_of(take_line(text));
    if (!words.empty() && words.front().starts_with("JobId=")) {
      HVD_RETURN_IF_ERROR(add_nodes(block, nodes));
      block = {};
    }
    take_line_of_job(words, job, block);
  }
  HVD_RETURN_IF_ERROR(add_nodes(block, nodes));
  return nodes;
}

Result<std::vector<SlurmNode>> read_slurm_nodes(const std::string& job) {
  HVD_ASSIGN_OR_RETURN(const std::string text, output_of({"scontrol", "show", "job", "-d", job},
                                                         Deadline::after_seconds(kAnswerSeconds)));
  HVD_ASSIGN_OR_RETURN(auto nodes, parse_slurm_nodes(text, job));
  if (nodes.empty()) {
    const std::string words = printable(one_line(text), 300);
    return unavailable(
        cat("scontrol show job -d ", job, " printed ", words.empty() ? "nothing" : words));
  }
  return nodes;
}

std::optional<int> parse_kill_wait(std::string_view config) {
  while (!config.empty()) {
    const auto words = words_of(take_line(config));  // KillWait = 30 sec
    if (words.size() < 3 || words[0] != "KillWait" || words[1] != "=") continue;
    const auto seconds = parse_int(words[2]);
    if (seconds && *seconds >= 0 && *seconds <= INT32_MAX) return static_cast<int>(*seconds);
  }
  return std::nullopt;
}

std::optional<int> read_kill_wait() {
  const auto text =
      output_of({"scontrol", "show", "config"}, Deadline::after_seconds(kAnswerSeconds));
  return text.ok() ? parse_kill_wait(*text) : std::nullopt;
}

Result<std::vector<std::string>> slurm_node_names(const SlurmVariables& variable,
                                                  const std::string& suffix) {
  std::string name = "SLURM_JOB_NODELIST" + suffix;
  std::string list(trim(variable(name).value_or("")));
  if (list.empty()) {
    name = "SLURM_NODELIST" + suffix;  // the name in old releases
    list = trim(variable(name).value_or(""));
  }
  std::vector<std::string> names;
  for (const std::string_view part : split_outside_brackets(list)) {
    const auto some = expand_names(trim(part));
    if (!some.ok()) return some.status().with_context(name);
    names.insert(names.end(), some->begin(), some->end());
    if (names.size() > kMaxNames) return invalid_argument(cat(name, " names too many hosts"));
  }
  for (const std::string& each : names) {
    if (Status status = check_host_name(each); !status.ok()) return status.with_context(name);
  }
  return names;
}

Result<std::vector<std::string>> slurm_suffixes(const SlurmVariables& variable) {
  const std::string groups(trim(variable("SLURM_HET_SIZE").value_or("")));
  if (groups.empty()) return std::vector<std::string>{""};
  const auto count = parse_int(groups);
  if (!count || *count < 1 || *count > 128) {
    return invalid_argument(
        cat("SLURM_HET_SIZE=", printable(groups), " is not a number of groups"));
  }
  std::vector<std::string> suffixes;
  for (int64_t i = 0; i < *count; ++i) suffixes.push_back(cat("_HET_GROUP_", i));
  return suffixes;
}

Result<std::vector<SlurmNode>> slurm_nodes_in(const SlurmVariables& variable) {
  HVD_ASSIGN_OR_RETURN(const auto suffixes, slurm_suffixes(variable));
  std::vector<SlurmNode> nodes;
  for (size_t i = 0; i < suffixes.size(); ++i) {
    HVD_ASSIGN_OR_RETURN(auto names, slurm_node_names(variable, suffixes[i]));
    const int component = suffixes[i].empty() ? -1 : static_cast<int>(i);
    for (std::string& name : names) nodes.push_back({std::move(name), "", 0, component, 0});
  }
  return nodes;
}

bool is_in_plain_step(const SlurmVariables& variable) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  const auto step = parse_int(trim(variable("SLURM_STEP_ID").value_or("")));
  return step && *step < kFirstSpecialStep;
}

std::string slurm_job_id() {
  // Each component has its own job number, but steps use the leader's number.
  if (auto leader = environment_variable("SLURM_JOB_ID_HET_GROUP_0")) return *leader;
  return environment_variable("SLURM_JOB_ID").value_or("");
}

}  // namespace hvd::launcher
