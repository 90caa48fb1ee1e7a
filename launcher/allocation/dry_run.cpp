#include "launcher/allocation/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/allocation/launch_method.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

namespace {

std::string first_to_last(int first, int last) {
  return first == last ? cat(first) : cat(first, "-", last);
}

}  // namespace

std::string plan_as_json(const SlotPlan& plan, const LaunchSettings& settings) {
  using Json = nlohmann::ordered_json;
  JobEnvironment job;
  job.start_timeout = settings.job.start_timeout.value;
  const Environment shared = overlay(flag_environment(settings), job_environment(job));
  Json ranks = Json::array();
  for (const Slot& slot : plan.slots) {
    Json env = Json::object();
    const std::string& host = plan.hosts[static_cast<size_t>(slot.host)].name;
    Environment own = slot_environment(slot, host, plan.size());
    if (settings.environment.no_torch_env) remove_torch_variables(own);
    for (const auto& [name, value] : overlay(own, shared)) {
      env[name] = value;
    }
    Json rank = Json::object();
    rank["rank"] = slot.rank;
    rank["host"] = host;
    rank["local_rank"] = slot.local_rank;
    rank["local_size"] = slot.local_size;
    rank["cross_rank"] = slot.cross_rank;
    rank["cross_size"] = slot.cross_size;
    rank["env"] = std::move(env);
    ranks.push_back(std::move(rank));
  }
  const LaunchMethods methods(settings, is_in_plain_step(environment_variable));
  Json hosts = Json::array();
  for (const Host& host : plan.hosts) {
    const LaunchMethod method = methods.of(host);
    Json each = Json::object();
    each["host"] = host.name;
    each["start"] = method.is_step ? "step" : method.command.empty() ? "ssh" : "command";
    each["host_timeout"] = method.silence.host_timeout_seconds;
    each["lease"] = method.silence.lease_seconds;
    hosts.push_back(std::move(each));
  }
  Json root = Json::object();
  root["size"] = plan.size();
  root["hosts"] = std::move(hosts);
  root["ranks"] = std::move(ranks);
  return root.dump() + "\n";
}

std::string plan_as_table(const SlotPlan& plan, const LaunchSettings& settings) {
  const LaunchMethods methods(settings, is_in_plain_step(environment_variable));
  std::vector<std::array<std::string, 4>> rows = {{"host", "ranks", "local ranks", "agent by"}};
  for (size_t host = 0; host < plan.hosts.size(); ++host) {
    const auto is_there = [&](const Slot& slot) { return slot.host == static_cast<int>(host); };
    const auto first = std::ranges::find_if(plan.slots, is_there);
    const int last = first->local_size - 1;
    const LaunchMethod method = methods.of(plan.hosts[host]);
    rows.push_back({plan.hosts[host].name, first_to_last(first->rank, first->rank + last),
                    first_to_last(0, last),
                    method.is_step            ? "srun"
                    : !method.command.empty() ? "--launch-agent"
                                              : "ssh, unless this machine"});
  }
  std::array<size_t, 4> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  const std::string hosts =
      plan.hosts.size() == 1 ? "1 host" : fmt::format("{} hosts", plan.hosts.size());
  return fmt::format("{}\n{} on {}; --json also prints the variables of each rank\n", text,
                     count_of_ranks(plan.size()), hosts);
}

}  // namespace hvd::launcher
