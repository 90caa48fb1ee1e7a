#include "launcher/observe/views/job_states.h"

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

double tenths(double seconds) { return std::round(seconds * 10) / 10; }
double seconds_of(uint64_t microseconds) { return static_cast<double>(microseconds) / 1e6; }

// Adds the figures that `ps` and `top` show to the states of ranks.
class Figures {
 public:
  Figures(const HostTable& hosts, const JobFigures& figures) : hosts_(hosts), figures_(figures) {}

  void add(const RankRun& rank, Json& entry) {
    const RankMetrics* const metrics = figures_.rank(rank.number());
    if (metrics != nullptr && metrics->pid != 0) {
      entry["pid"] = metrics->pid;
      entry["seconds"] = static_cast<double>(metrics->age_milliseconds) / 1e3;
      if (metrics->activity == RankActivity::kStopped) entry["stopped"] = true;
      entry["cpu_seconds"] = seconds_of(metrics->usage.cpu_microseconds);
      entry["run_delay_seconds"] = seconds_of(metrics->usage.run_delay_microseconds);
      entry["memory"] = metrics->usage.resident_bytes;
      entry["threads"] = metrics->usage.threads;
      if (metrics->gpu_percent >= 0) entry["gpu_share"] = metrics->gpu_percent / 100.0;
      if (metrics->usage.gpu_bytes > 0) entry["gpu_memory"] = metrics->usage.gpu_bytes;
    }
    if (metrics != nullptr && metrics->has_counters != 0) {
      entry["steps"] = metrics->counts.steps;
      entry["operations"] = metrics->counts.operations;
      entry["bytes"] = metrics->counts.bytes;
      entry["pending"] = metrics->counts.pending;
    }
    if (metrics != nullptr && metrics->step_microseconds > 0) {
      entry["step_seconds"] = seconds_of(metrics->step_microseconds);
      entry["waited_share"] = metrics->waited_thousandths / 1000.0;
    }
    const std::string wait = wait_of(rank, metrics);
    if (!wait.empty()) entry["waits_for"] = wait;
  }

 private:
  std::string wait_of(const RankRun& rank, const RankMetrics* metrics) {
    if (rank.state() == RankState::kInInit) return init_wait_of(rank);
    if (metrics == nullptr) return "";
    std::string ranks =
        rank.state() == RankState::kInJob ? figures_.operation_wait(rank.rank()) : "";
    return ranks.empty() && metrics->is_on_disk != 0 ? "disk" : ranks;
  }

  std::string init_wait_of(const RankRun& rank) {
    const auto [found, is_new] = init_waits_.try_emplace(rank.start());
    if (!is_new) return found->second;
    std::vector<int> missing;
    for (const int number : figures_.init_wait(rank.number())) {
      if (const int present = hosts_.rank_of(number); present >= 0) missing.push_back(present);
    }
    found->second =
        missing.empty() ? "hvd.init()" : cat(name_of_ranks(missing), " to call hvd.init()");
    return found->second;
  }

  const HostTable& hosts_;
  const JobFigures& figures_;
  // Texts about waits in hvd.init(), by the name of the ranks' start.
  std::map<std::string, std::string> init_waits_;
};

Json rank_as_json(const RankRun& rank, bool has_generation) {
  Json entry = Json::object();
  if (has_generation || !rank.is_member()) entry["process"] = rank.number();
  if (rank.is_member()) entry["rank"] = rank.rank();
  entry["state"] = to_string(rank.state());
  if (!rank.is_over()) return entry;
  if (rank.exit().signal != 0)
    entry["signal"] = rank.exit().signal;
  else
    entry["code"] = rank.exit().code;
  return entry;
}

// `figures`: null to omit silences, metrics and waits.
Json all_as_json(const HostTable& hosts, const JobFigures* figures) {
  const auto more = figures != nullptr ? std::make_unique<Figures>(hosts, *figures) : nullptr;
  Json all = Json::array();
  for (const HostRun& host : hosts.hosts()) {
    const std::chrono::duration<double> seconds = Clock::now() - host.since();
    Json entry = {{"host", host.name()}, {"state", to_string(host.state())}};
    if (host.state() == HostState::kConnecting) entry["stage"] = to_string(host.stage());
    entry["seconds"] = tenths(seconds.count());
    const double silence = figures != nullptr ? figures->silence(host) : 0;
    if (silence > 0) entry["silence"] = tenths(silence);
    Json ranks = Json::array();
    for (const RankRun* rank : host.ranks()) {
      ranks.push_back(rank_as_json(*rank, hosts.generation() >= 0));
      if (more && !rank->is_over()) more->add(*rank, ranks.back());
    }
    entry["ranks"] = std::move(ranks);
    all.push_back(std::move(entry));
  }
  return all;
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string hosts_as_json(const HostTable& hosts) { return text_of(all_as_json(hosts, nullptr)); }

std::string job_as_json(const HostTable& hosts, const JobFigures& figures) {
  Json text = {{"pid", figures.pid}};
  if (!figures.name.empty()) text["name"] = figures.name;
  if (hosts.generation() >= 0) text["generation"] = hosts.generation();
  text["command"] = figures.command;
  text["seconds"] = tenths(figures.seconds);
  text["size"] = hosts.members().size();
  if (figures.read_at >= 0) text["read_at"] = std::round(figures.read_at * 1000) / 1000;
  if (figures.step_age >= 0) text["step_age"] = tenths(figures.step_age);
  if (figures.slowest) {
    text["slowest"] = {{"rank", figures.slowest->rank},
                       {"late_seconds", figures.slowest->late_seconds}};
  }
  text["hosts"] = all_as_json(hosts, &figures);
  return text_of(text) + "\n";
}

std::string with_present_ranks(std::string_view text, const HostTable& hosts) {
  constexpr std::string_view kHead = "rank ";
  std::string named;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const auto process =
        line.starts_with(kHead) ? parse_int(line.substr(kHead.size())) : std::nullopt;
    const int rank = process ? hosts.rank_of(*process) : -1;
    if (!process)
      named += line;
    else if (rank < 0)
      named += cat("process ", *process, ", not a rank");
    else
      named += cat("rank ", rank, " (process ", *process, ")");
    named += '\n';
  }
  return named;
}

}  // namespace hvd::launcher
