#include "launcher/observe/views/job_view.h"

#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::optional<T> maybe(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? std::nullopt : std::optional<T>(found->get<T>());
}

RankView read_rank(const Json& json) {
  RankView rank;
  rank.rank = json.value("rank", -1);
  rank.process = json.value("process", -1);
  rank.state = json.at("state").get<std::string>();
  rank.code = maybe<int>(json, "code");
  rank.signal = maybe<int>(json, "signal");
  rank.is_stopped = json.value("stopped", false);
  rank.pid = json.value("pid", int64_t{-1});
  rank.seconds = json.value("seconds", -1.0);
  rank.cpu_seconds = json.value("cpu_seconds", -1.0);
  rank.run_delay_seconds = json.value("run_delay_seconds", -1.0);
  rank.memory = json.value("memory", int64_t{-1});
  rank.steps = maybe<uint64_t>(json, "steps");
  rank.bytes = maybe<uint64_t>(json, "bytes");
  rank.pending = maybe<uint64_t>(json, "pending");
  rank.step_seconds = json.value("step_seconds", -1.0);
  rank.waited_share = json.value("waited_share", -1.0);
  rank.gpu_share = json.value("gpu_share", -1.0);
  rank.gpu_memory = json.value("gpu_memory", int64_t{-1});
  rank.waits_for = json.value("waits_for", std::string());
  return rank;
}

HostView read_host(const Json& json) {
  HostView host;
  host.name = json.at("host").get<std::string>();
  host.state = json.at("state").get<std::string>();
  host.stage = json.value("stage", std::string());
  host.seconds = json.value("seconds", 0.0);
  host.silence = json.value("silence", 0.0);
  for (const Json& rank : json.at("ranks")) host.ranks.push_back(read_rank(rank));
  return host;
}

JobView read_whole_job(const Json& json) {
  JobView job;
  job.pid = json.at("pid").get<int64_t>();
  job.name = json.value("name", std::string());
  job.generation = json.value("generation", int64_t{-1});
  job.command = json.at("command").get<std::vector<std::string>>();
  job.seconds = json.value("seconds", 0.0);
  for (const Json& host : json.at("hosts")) job.hosts.push_back(read_host(host));
  job.size = json.value("size", int64_t{0});
  job.read_at = json.value("read_at", -1.0);
  job.step_age = json.value("step_age", -1.0);
  if (const auto slowest = json.find("slowest"); slowest != json.end()) {
    job.slowest = slowest->at("rank").get<int>();
    job.late_seconds = slowest->at("late_seconds").get<double>();
  }
  return job;
}

}  // namespace

Result<JobView> read_job(std::string_view json) {
  try {
    return read_whole_job(Json::parse(json));
  } catch (const Json::exception&) {
    return invalid_argument("the answer of the launcher is not one of this release");
  }
}

}  // namespace hvd::launcher
