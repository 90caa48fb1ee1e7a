#include "launcher/check/doctor.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/cli/options.h"
#include "launcher/job/quiet_job.h"
#include "launcher/output/report.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

// A level's own limits end its checks long before these seconds.
const char* time_limit_of(const std::string& level) { return level == "full" ? "300" : "60"; }

// The user's settings that concern the way to the hosts: without `hosts` and `hostfile`, a job within an allocation
// reaches its hosts by the scheduler. An examination has no other setting of the job.
constexpr const char* kKept[] = {
    "hosts",       "hostfile",           "start_timeout", "agent_dir",
    "ssh_port",    "ssh_identity_file",  "ssh_command",   "launch_agent",
    "remote_init", "network_interfaces", "port_range"};

// Returns the job that examines hosts. It starts in /, and needs no directory of the user.
Options examining_job(const Options& options, const std::string& level,
                      const std::vector<Host>& hosts) {
  const Settings& given = options.settings.table();
  Settings settings;
  for (const char* key : kKept) {
    if (given.is_set(key)) HVD_CHECK(settings.set(key, given.text(key)).ok());
  }
  for (const auto& [key, value] : {std::pair{"wdir", "/"},
                                   {"log_format", "json"},
                                   {"stdin", "none"},
                                   {"preflight", "off"},
                                   {"timeout", time_limit_of(level)}}) {
    HVD_CHECK(settings.set(key, value).ok());
  }
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    const bool is_name = host.name != "localhost" && net::address_bytes(host.name).empty();
    if (is_name) names.push_back(host.name);
  }
  Options job{LaunchSettings(std::move(settings)),
              {kAgentProgram, "--doctor", level, join(names, ",")}};
  job.command.insert(job.command.end(), options.command.begin(), options.command.end());
  return job;
}

// Reads the answers of the hosts `asked`, indices of diagnosis.hosts: rank i is host asked[i]. Returns the launcher's
// own sentences.
std::vector<std::string> read_answers(const std::vector<QuietLine>& lines,
                                      const std::vector<size_t>& asked, Diagnosis& diagnosis) {
  std::vector<std::string> sentences;
  for (const QuietLine& line : lines) {
    if (!line.rank) {
      sentences.push_back(line.text);
      continue;
    }
    const auto rank = static_cast<size_t>(*line.rank);
    if (rank >= asked.size()) continue;
    auto parsed = parse_doctor_line(line.text);
    if (!parsed.ok()) {  // a line of the host's own tools, such as a warning of the loader
      diagnosis.hosts[asked[rank]].error = printable(line.text);
      continue;
    }
    nlohmann::json& facts = diagnosis.hosts[asked[rank]].facts;
    if (parsed->facts && facts.is_null()) facts = nlohmann::json::object();
    if (parsed->facts) facts.update(*parsed->facts);
    if (!parsed->pair) continue;
    PairResult& pair = *parsed->pair;
    const auto place = [&](int& host) {
      if (static_cast<size_t>(host) >= asked.size()) return false;
      host = static_cast<int>(asked[static_cast<size_t>(host)]);
      return true;
    };
    if (place(pair.from) && place(pair.to)) diagnosis.pairs.push_back(std::move(pair));
  }
  return sentences;
}

// Notes the reason of each host that could not be prepared: the sentence that begins with its name.
void note_failed(const std::vector<std::string>& sentences, const std::vector<size_t>& failed,
                 Diagnosis& diagnosis) {
  for (const size_t index : failed) {
    HostFacts& host = diagnosis.hosts[index];
    host.error = "it cannot be reached";
    for (const std::string& sentence : sentences) {
      for (const std::string& start :
           {cat("host ", host.host, ": "), cat("horovodrun: host ", host.host, ": ")}) {
        if (sentence.starts_with(start)) host.error = sentence.substr(start.size());
      }
    }
  }
}

// Returns the hosts of the settings or of the allocation, or else this machine.
Result<std::vector<Host>> hosts_to_examine(const LaunchSettings& settings) {
  const bool has_hosts = settings.hosts.list || settings.hosts.hostfile || has_allocation(settings);
  if (has_hosts) return choose_hosts(settings);
  Host here;
  here.name = "localhost";
  return std::vector<Host>{here};
}

}  // namespace

Result<Diagnosis> examine(const Options& options, std::vector<Host> hosts,
                          const std::string& level) {
  const auto begin = Clock::now();
  Diagnosis diagnosis{.level = level};
  for (Host& host : hosts) {
    HostFacts facts{.host = host.name};
    facts.ranks = std::max(host.slots, 1);
    diagnosis.hosts.push_back(std::move(facts));
    host.slots = 1;
  }
  const Options job = examining_job(options, level, hosts);
  std::set<size_t> lost;
  while (lost.size() < hosts.size()) {
    std::vector<Host> asked;
    std::vector<size_t> indices;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (lost.contains(i)) continue;
      asked.push_back(hosts[i]);
      indices.push_back(i);
    }
    HVD_ASSIGN_OR_RETURN(const std::string output, QuietJob(job, asked).output());
    const QuietAnswer answer = read_quiet_output(output);
    const std::vector<std::string> sentences = read_answers(answer.lines, indices, diagnosis);
    std::vector<size_t> failed;
    for (const int host : answer.failed_hosts)
      failed.push_back(indices.at(static_cast<size_t>(host)));
    note_failed(sentences, failed, diagnosis);
    const bool has_answers = std::ranges::any_of(
        indices, [&](size_t i) { return diagnosis.hosts[i].facts.is_object(); });
    if (has_answers) break;
    if (failed.empty()) {
      return unavailable(sentences.empty() ? "the hosts gave no answer" : join(sentences, "; "));
    }
    lost.insert(failed.begin(), failed.end());
  }
  judge(diagnosis);
  diagnosis.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return diagnosis;
}

Status pass_preflight(const Options& options, SlotPlan& plan, std::vector<Host>& spares) {
  const std::string level = options.settings.job.preflight.value_or("");
  if (level != "net" && level != "full") return {};
  std::vector<Host> hosts(plan.hosts.begin(), plan.hosts.end());
  hosts.insert(hosts.end(), spares.begin(), spares.end());
  auto examined = examine(options, std::move(hosts), level);
  if (!examined.ok()) return examined.status().with_context(cat("--preflight ", level));
  Diagnosis& diagnosis = *examined;
  std::erase_if(diagnosis.findings,
                [](const Finding& finding) { return finding.verdict < Verdict::kWarn; });
  for (const std::string& sentence : finding_sentences(diagnosis)) print_message(sentence);
  std::set<std::string> bad;
  bool has_bad_link = false;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.verdict != Verdict::kFail) continue;
    if (finding.hosts.size() == 1)
      bad.insert(finding.hosts.front());
    else
      has_bad_link = true;
  }
  std::erase_if(spares, [&](const Host& spare) { return bad.contains(spare.name); });
  std::vector<int> failed;
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    if (bad.contains(plan.hosts[i].name)) failed.push_back(static_cast<int>(i));
  }
  const Replacement replaced = replace_hosts(plan, failed, spares);
  for (const std::string& sentence : replaced.sentences) print_message(sentence);
  const bool is_refused = !replaced.unreplaced.empty() || has_bad_link;
  if (!is_refused || options.settings.job.preflight_action != "stop") return {};
  return failed_precondition(
      "the job does not start, because its hosts or their links have failures (--preflight-action "
      "stop)");
}

bool asks_for_doctor(std::span<const std::string> arguments) {
  return !arguments.empty() && arguments[0] == "doctor";
}

int run_doctor(std::span<const std::string> arguments) {
  // As a question, the command line needs no program.
  std::vector<std::string> words = {"--check-build"};
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  const auto options = parse_options(words);
  if (!options.ok()) return refuse(options.status());
  const auto hosts = hosts_to_examine(options->settings);
  if (!hosts.ok()) return refuse(hosts.status());
  const std::string level = options->settings.job.preflight.value_or("net");
  if (level == "off")
    return refuse(invalid_argument("doctor takes --preflight quick, net or full"));
  const bool is_json = options->settings.questions.json;
  print_message(cat("examines ", hosts->size(), hosts->size() == 1 ? " host" : " hosts",
                    " at level ", level));
  const auto diagnosis = examine(*options, *hosts, level);
  if (!diagnosis.ok()) return refuse(diagnosis.status());
  const int printed =
      print_answer(is_json ? diagnosis_json(*diagnosis) : diagnosis_text(*diagnosis));
  return printed != 0 ? printed : has_failures(*diagnosis) ? 1 : 0;
}

}  // namespace hvd::launcher
