#include "launcher/reach/device_count.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/cores.h"
#include "base/text.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/output/report.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"
#include "launcher/reach/host_jobs.h"
#include "launcher/reach/host_startup.h"
#include "net/asio.h"

namespace hvd::launcher {
namespace {

// Ignores the events of a host's agent: a host without ranks has no events.
class NoEvents : public AgentEvents {
  void on_output(int, OutputStream, ByteView) override {}
  void on_output_end(int, OutputStream) override {}
  void on_report(const AgentReport&) override {}
  void on_lost(const Status&) override {}
  void on_store_connection(net::StreamSocket) override {}
};

// Returns the options for reaching the hosts, without files, package, directory or program of the user.
Result<Options> counting_job(const Options& options) {
  Options job;
  job.command = {"sh"};
  job.is_in_slurm_step = options.is_in_slurm_step;
  Settings settings;
  for (const char* key : {"ssh_port", "ssh_identity_file", "ssh_command", "launch_agent",
                          "agent_dir", "start_timeout", "no_env"}) {
    if (!options.settings.table().is_set(key)) continue;
    HVD_RETURN_IF_ERROR(settings.set(key, options.settings.table().text(key)));
  }
  job.settings = LaunchSettings(std::move(settings)).with("wdir", "/").with("ship", "0");
  return job;
}

int count_of(const AgentLink& link, std::string_view device) {
  const auto gpus = static_cast<int>(parse_int(link.version_of(kGpus)).value_or(0));
  const double cores = parse_double(link.version_of(kCores)).value_or(1);
  return ranks_for(device, gpus, cores);
}

// Returns the counts in the order of `hosts`.
Result<std::vector<int>> ask_agents(const Options& options, std::vector<Host> hosts) {
  for (Host& host : hosts) host.slots = 1;
  HVD_ASSIGN_OR_RETURN(const Options job, counting_job(options));
  HVD_ASSIGN_OR_RETURN(const SlotPlan plan, plan_slots(hosts, std::nullopt));
  net::asio::io_context loop(1);
  HostTable table(plan);
  const JobIdentity identity = random_job();
  HostJobs host_jobs(job, plan, table, 0, identity);
  HVD_RETURN_IF_ERROR(host_jobs.read());
  for (HostRun& host : table.hosts()) host.set_events(std::make_unique<NoEvents>());
  ResolvedEnvironment environment;  // stays empty, because no host gets --stage-env here
  HostStartup startup(loop, job, table, host_jobs, nullptr, environment);
  std::vector<Status> errors;
  net::asio::co_spawn(loop, startup.reach(),
                      [&](std::exception_ptr thrown, std::vector<Status> found) {
                        errors = std::move(found);
                        if (thrown) errors.push_back(net::status_of(thrown, "cancelled"));
                        loop.stop();
                      });
  loop.run();
  std::vector<int> counts;
  for (HostRun& host : table.hosts()) {
    if (errors.empty()) counts.push_back(count_of(*host.link(), options.settings.hosts.slots_by));
    host.release();  // must precede the end of `startup`, which owns the spawners that the link uses
  }
  if (!errors.empty()) return errors.front();
  return counts;
}

}  // namespace

Result<std::vector<Host>> choose_hosts_with_slots(const Options& options) {
  HVD_ASSIGN_OR_RETURN(std::vector<Host> hosts, choose_hosts(options.settings));
  std::vector<Host> unknown;
  for (const Host& host : hosts) {
    if (host.slots == 0) unknown.push_back(host);
  }
  if (unknown.empty()) return hosts;
  HVD_ASSIGN_OR_RETURN(const std::vector<int> counts, ask_agents(options, unknown));
  auto count = counts.begin();
  for (Host& host : hosts) {
    if (host.slots != 0) continue;
    host.slots = *count++;
    explain(cat("host ", host.name, " has slots for ", host.slots, " ranks, as its agent counts"));
  }
  return hosts;
}

}  // namespace hvd::launcher
