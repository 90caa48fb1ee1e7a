// The part of a launch that an elastic job has besides: asks Generations what to do, starts and ends
// hosts while the job runs, and exchanges records with the processes through the job's store. Owns the
// generations, their timer, and the hosts that are being started. JobLaunch owns and calls it. Lives on
// the launch's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/elastic/generations.h"
#include "launcher/elastic/script_discovery.h"
#include "launcher/job/host_jobs.h"
#include "launcher/job/host_startup.h"
#include "launcher/job/supervisor.h"
#include "launcher/link/agent_link.h"
#include "launcher/link/join_queue.h"
#include "launcher/output/output.h"
#include "launcher/plan/slot_plan.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class ElasticJob : private GenerationActions {
 public:
  // The parts of the launch that this object uses and changes; they outlive it.
  struct Launch {
    net::asio::io_context& loop;
    const Options& options;
    SlotPlan& plan;
    HostStartup& startup;
    Supervisor& supervisor;
    JobOutput& output;
    rendezvous::Server& server;
    std::vector<std::unique_ptr<AgentLink>>& links;  // null: no agent yet
    JoinQueue* join_queue;                           // hosts that join wait here, or null
    double grace;
    // Adds a receiver for the events of the plan's last host.
    std::function<AgentEvents*()> add_events;
    std::function<void(Supervisor::Action)> act;
    // Its pool names all hosts that the job may use; the plan has those that it begins with.
    JobHistory& history;
  };
  explicit ElasticJob(Launch launch);
  ~ElasticJob() override;

  // The ranks of all hosts of the plan are about to start.
  void begin();
  // As Supervisor::Survives.
  bool survives(int process, int host, int exit_code, const std::string& sentence);
  // `horovodrun resize N` or `remove HOST|RANK`, as words. A sentence about what follows, or about why
  // not.
  Result<std::string> change(const std::vector<std::string>& words);
  // The agent of this host is about to end.
  void host_leaves(int host, const std::string& why);
  const Generations& generations() const { return generations_; }
  // The program is to be started again, when this launch has ended.
  bool wants_restart() const { return wants_restart_; }
  // No further host is started.
  void stop();
  // Returns when the discovery script has ended.
  net::Task<void> end();

 private:
  int start_host(const Host& host, int slots) override;
  void start_processes(int host) override;
  void end_host(int host) override;
  void end_process(int process) override;
  void begin_generation(const rendezvous::Generation& generation) override;
  void answer(int process, int64_t request, const rendezvous::PlaceAnswer& answer) override;
  void tell_updates(int32_t generation, rendezvous::HostUpdates updates) override;
  void tell_loss(int32_t generation, const std::string& sentence) override;
  void tell_leave(int host, double seconds) override;
  void say(const std::string& sentence) override;
  void end_job(int exit_code, const std::string& sentence, int process) override;
  void restart() override;

  net::Task<void> bring_up(int host, AgentEvents* events);
  Status hold(int host, std::unique_ptr<AgentLink> link);
  net::Task<void> start(int host);
  net::Task<void> end_in_time(int host);
  void end_unstarted(int host);
  void take_request(const std::string& key);
  void set(const std::string& key, ByteView value);
  // The agent of this host ends. Its name is free for another one, which has no failures.
  void leave_queue(const std::string& name);
  void arm();

  Launch launch_;
  Generations generations_;
  net::asio::steady_timer timer_;
  std::unique_ptr<ScriptDiscovery> discovery_;  // or none
  std::vector<bool> is_ended_;                  // by host: end_host() was called
  std::vector<bool> is_started_;  // by host: it has got the order to start its processes
  std::vector<bool> is_held_;     // by host: its agent waits for that order
  std::set<int> unstarted_;       // processes to be ended as soon as they are started
  bool is_stopped_ = false;
  bool wants_restart_ = false;
};

// The beginning of an elastic job, of which these are the hosts.
JobHistory new_history(const Settings& settings, std::vector<Host> hosts, bool hosts_join);

// The plan of the next launch, on hosts with enough slots: hosts of the last generation keep their order.
Result<SlotPlan> plan_again(const Settings& settings, const JobHistory& history,
                            std::vector<Host> hosts);

// The hosts that an elastic job begins with, as a plan: all of them, up to --max-np ranks.
Result<SlotPlan> plan_elastic(const Settings& settings, const std::vector<Host>& hosts);

}  // namespace hvd::launcher
