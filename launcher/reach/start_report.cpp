#include "launcher/reach/start_report.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/cli/commands.h"
#include "launcher/doctor/report.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/link/agent_link.h"
#include "launcher/output/report.h"
#include "launcher/plan/environment_choice.h"
#include "launcher/plan/host_remarks.h"
#include "launcher/plan/worker_env.h"
#include "launcher/protocol/binding_choice.h"

namespace hvd::launcher {
namespace {

// If a host lacks the program, returns a sentence about the horovodrun command that the user may have meant; or empty.
std::string meant_command(const std::vector<Status>& errors, const std::string& program) {
  const std::string missing = cat("program '", printable(program), "' was not found on PATH");
  const bool is_missing = std::ranges::any_of(errors, [&](const Status& error) {
    return error.message().find(missing) != std::string::npos;
  });
  return is_missing ? explain_unknown_command(program) : "";
}

// For --verbose: prints the programs of the hosts, and the endpoint for other stacks.
void explain_start(const HostTable& hosts) {
  for (const HostRun& host : hosts.hosts()) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : host.link()->prepared().versions) {
      if (name != kBindings && name != kBindingRemark && name != kHostFacts)
        parts.push_back(cat(name, " ", value));
    }
    if (parts.empty()) continue;
    explain(cat("host ", host.name(), ": ", join(parts, ", ")));
  }
  for (const HostRun& host : hosts.hosts()) {
    const StartOrder& order = host.order();
    std::string endpoint;
    for (const auto& [name, value] : order.environment) {
      if (name == "MASTER_ADDR" || name == "MASTER_PORT") endpoint += cat(" ", name, "=", value);
    }
    if (endpoint.empty()) continue;
    explain(cat("host ", host.name(), ": ranks get", endpoint,
                order.interface.empty() ? "" : cat(", which it reaches by ", order.interface)));
  }
}

void print_thread_shares(const HostTable& hosts, JobOutput& output) {
  std::vector<std::string> names;
  std::vector<uint32_t> threads;
  for (const HostRun& host : hosts.hosts()) {
    names.push_back(host.name());
    threads.push_back(host.link()->prepared().threads);
  }
  const std::string sentence = describe_thread_shares(names, threads);
  if (!sentence.empty()) output.print(sentence);
}

void print_binding(const HostTable& hosts, JobOutput& output) {
  std::vector<std::pair<std::string, std::string>> bound;
  for (const HostRun& host : hosts.hosts()) {
    const std::string cores = host.link()->version_of(kBinding);
    if (!cores.empty()) bound.emplace_back(host.name(), cores);
  }
  const std::string sentence = describe_binding(bound);
  if (!sentence.empty()) output.print(sentence);
}

// Prints the ranks' bindings (--report-bindings), and a remark for each host with ranks that --bind-to has not bound.
void print_bindings(const HostTable& hosts, JobOutput& output) {
  std::vector<HostBindings> bindings;
  for (const HostRun& host : hosts.hosts()) {
    const std::string remark = host.link()->version_of(kBindingRemark);
    if (!remark.empty()) output.print(cat("host ", host.name(), ": ", remark));
    HostBindings& each = bindings.emplace_back();
    each.host = host.name();
    each.lines = split(host.link()->version_of(kBindings), '\n');
    for (const RankRun* rank : host.ranks()) each.ranks.push_back(rank->number());
  }
  for (const std::string& line : describe_bindings(bindings)) output.print(line);
}

// Prints what the agents have noticed about their hosts (--preflight quick). Ranks that share cores have a message of
// their own.
void print_preflight(const HostTable& hosts, const Options& options, JobOutput& output) {
  if (options.settings.job.preflight == "off") return;
  Diagnosis diagnosis{.level = "quick"};
  for (const HostRun& host : hosts.hosts()) {
    HostFacts facts{.host = host.name(), .ranks = static_cast<int>(host.ranks().size())};
    facts.facts = nlohmann::json::parse(host.link()->version_of(kHostFacts), nullptr, false);
    if (facts.facts.is_object()) diagnosis.hosts.push_back(std::move(facts));
  }
  judge(diagnosis);
  std::erase_if(diagnosis.findings, [](const Finding& finding) {
    return finding.verdict < Verdict::kWarn || finding.id == "cpus";
  });
  for (const std::string& sentence : finding_sentences(diagnosis)) output.print(sentence);
}

// Returns sentences about the user's settings and variables that have no effect, or less effect than expected. Reads
// the environment of the launcher.
std::vector<std::string> setting_remarks(const LaunchSettings& settings,
                                         const EnvironmentChoice& choice) {
  std::vector<std::string> remarks = about_misspelt_variables(
      overlay(overlay(environment(), choice.earlier_values), choice.values));
  for (const char* key : {"mpi_args", "binding_args"}) {
    if (!settings.table().is_set(key)) continue;
    remarks.push_back(cat(setting(key).flags, " has no effect without --mpi or --jsrun"));
  }
  const std::string level = settings.job.preflight.value_or("quick");
  const bool is_examined = level == "net" || level == "full";
  if (is_examined && (is_elastic(settings) || settings.join.listen)) {
    remarks.push_back(cat("--preflight ", level,
                          " is for jobs of constant size that horovodrun starts on their hosts: "
                          "the hosts of this job are examined at level quick as they start"));
  }
  if (!is_examined && settings.table().is_set("preflight_action"))
    remarks.emplace_back("--preflight-action has no effect without --preflight net or full");
  const auto own = ineffective_names(choice, !settings.environment.no_torch_env);
  for (const std::string& name : own) {
    remarks.push_back(cat(name, " of -x or --env-file has no effect: horovodrun itself sets this ",
                          "variable for each rank"));
  }
  for (const std::string& name : unset_names(environment(), choice)) {
    if (std::ranges::find(own, name) != own.end()) continue;
    remarks.push_back(
        cat(name, " of -x or --env-file is not set here, so ranks get none of that name"));
  }
  return remarks;
}

}  // namespace

void print_remarks(const Options& options, const HostJobs& host_jobs, JobOutput& output) {
  std::vector<std::string> remarks =
      setting_remarks(options.settings, host_jobs.environment_choice());
  if (host_jobs.code()) remarks.push_back(describe_special(*host_jobs.code()));
  remarks.push_back(host_jobs.remark());
  for (const std::string& remark : remarks) {
    if (!remark.empty()) output.print(remark);
  }
}

void print_errors(const HostStartup::Outcome& hosts, const Options& options, JobOutput& output) {
  for (const Status& error : hosts.errors) output.print(error.message(), Tone::kError);
  const std::string meant = meant_command(hosts.errors, options.command[0]);
  if (!meant.empty()) output.print(meant);
}

void print_start(const HostStartup::Outcome& outcome, const HostTable& hosts, bool is_first,
                 const Options& options, JobOutput& output) {
  for (const std::string& warning : outcome.warnings) output.print(warning);
  print_preflight(hosts, options, output);
  if (is_first) print_binding(hosts, output);
  if (is_first || options.settings.table().flag("report_bindings")) print_bindings(hosts, output);
  if (is_first && options.settings.job.verbose) print_thread_shares(hosts, output);
  explain_start(hosts);
}

}  // namespace hvd::launcher
