#include "launcher/inspect/job_states.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json rank_as_json(const RankRun& rank, const JobStates& job) {
  Json entry = Json::object();
  const int number = job.rank_of(rank.number());
  if (job.generation >= 0 || number < 0) entry["process"] = rank.number();
  if (number >= 0) entry["rank"] = number;
  entry["state"] = to_string(rank.state());
  if (!rank.is_over()) return entry;
  if (rank.exit().signal != 0)
    entry["signal"] = rank.exit().signal;
  else
    entry["code"] = rank.exit().code;
  return entry;
}

Json all_as_json(const HostTable& hosts, const JobStates& job) {
  Json all = Json::array();
  for (const HostRun& host : hosts.hosts()) {
    const std::chrono::duration<double> seconds = Clock::now() - host.since();
    Json entry = {{"host", host.name()}, {"state", to_string(host.state())}};
    if (host.state() == HostState::kConnecting) entry["stage"] = to_string(host.stage());
    entry["seconds"] = std::round(seconds.count() * 10) / 10;
    Json ranks = Json::array();
    for (const RankRun* rank : host.ranks()) ranks.push_back(rank_as_json(*rank, job));
    entry["ranks"] = std::move(ranks);
    all.push_back(std::move(entry));
  }
  return all;
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string hosts_as_json(const HostTable& hosts, const JobStates& job) {
  return text_of(all_as_json(hosts, job));
}

std::string job_as_json(int pid, const std::vector<std::string>& command, const HostTable& hosts,
                        const JobStates& job) {
  Json text = {{"pid", pid}};
  if (job.generation >= 0) text["generation"] = job.generation;
  text["command"] = command;
  text["hosts"] = all_as_json(hosts, job);
  return text_of(text) + "\n";
}

}  // namespace hvd::launcher
