#include "launcher/dry_run.h"

#include <nlohmann/json.hpp>

#include "launcher/worker_env.h"

namespace hvd::launcher {

std::string plan_as_json(const SlotPlan& plan, double start_timeout) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  for (const Slot& slot : plan.slots) {
    Json env = Json::object();
    JobEnvironment job;
    job.start_timeout = start_timeout;
    for (const auto& [name, value] : overlay(slot_environment(plan, slot), job_environment(job))) {
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
  Json root = Json::object();
  root["size"] = plan.size();
  root["ranks"] = std::move(ranks);
  return root.dump() + "\n";
}

}  // namespace hvd::launcher
