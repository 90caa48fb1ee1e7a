#include "launcher/allocation/dry_run.h"

#include <nlohmann/json.hpp>

#include "launcher/allocation/launch_method.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

std::string plan_as_json(const SlotPlan& plan, const Settings& settings) {
  using Json = nlohmann::ordered_json;
  JobEnvironment job;
  job.start_timeout = settings.number("start_timeout");
  const Environment shared = overlay(flag_environment(settings), job_environment(job));
  Json ranks = Json::array();
  for (const Slot& slot : plan.slots) {
    Json env = Json::object();
    Environment own = slot_environment(plan, slot);
    if (settings.flag("no_torch_env")) remove_torch_variables(own);
    for (const auto& [name, value] : overlay(own, shared)) {
      env[name] = value;
    }
    Json rank = Json::object();
    rank["rank"] = slot.rank;
    rank["host"] = plan.hosts[static_cast<size_t>(slot.host)].name;
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
    each["lease"] = method.lease_seconds;
    hosts.push_back(std::move(each));
  }
  Json root = Json::object();
  root["size"] = plan.size();
  root["hosts"] = std::move(hosts);
  root["ranks"] = std::move(ranks);
  return root.dump() + "\n";
}

}  // namespace hvd::launcher
