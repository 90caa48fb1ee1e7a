// Answers `horovodrun ps`, `stack`, `exec`, `resize` and `remove`, which a user runs in another terminal. Owns the
// socket to which these connect, the open queries to the agents, and the commands that run beside ranks.
// Passes orders that change an elastic job on to it. JobLaunch owns it and forwards the agents' events to
// it. Lives on the launch's loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/inspect/inspection.h"
#include "launcher/inspect/rank_commands.h"
#include "launcher/job/supervisor.h"
#include "launcher/link/agent_link.h"
#include "launcher/plan/slot_plan.h"
#include "net/asio.h"

namespace hvd::launcher {

class ElasticJob;

class JobInspector {
 public:
  // All arguments outlive this object.
  JobInspector(const net::asio::any_io_executor& executor, const Options& options,
               const SlotPlan& plan, const Supervisor& supervisor,
               const std::vector<std::unique_ptr<AgentLink>>& links);

  // The job is elastic. `elastic` outlives this object's loop.
  void set_elastic(ElasticJob* elastic);
  // Opens the socket. The job runs without it when that fails.
  void open();
  // Returns one text per host with the stacks of its ranks; empty for a host that did not answer.
  net::Task<std::vector<std::string>> stacks() {
    inspection_.grow(plan_.hosts.size());
    return inspection_.run(InspectDetail::kStacks);
  }
  // The same with one line about the busiest process of each rank.
  net::Task<std::vector<std::string>> activities() {
    return inspection_.run(InspectDetail::kActivity);
  }

  // The events of the agents.
  void on_inspected(int host, uint32_t number, const std::string& text) {
    inspection_.on_answer(static_cast<size_t>(host), number, text);
  }
  void on_said(const Said& said) { commands_.on_said(said); }
  void on_ran(const Ran& ran) { commands_.on_ran(ran); }
  void on_host_gone(int host) { commands_.on_host_gone(host); }
  void on_silence(int host, double seconds);
  void on_answer(int host) { commands_.on_answer(host); }
  // "no answer for 12 s", or empty while the host answers.
  std::string silence_of(size_t host) const;

 private:
  net::Task<void> answer(std::string request, net::StreamSocket& caller);
  net::Task<void> change(const std::vector<std::string>& words, net::StreamSocket& caller);

  const net::asio::any_io_executor executor_;
  const Options& options_;
  const SlotPlan& plan_;
  const Supervisor& supervisor_;
  const std::vector<std::unique_ptr<AgentLink>>& links_;
  ElasticJob* elastic_ = nullptr;
  Inspection inspection_;
  RankCommands commands_;
  std::unique_ptr<InspectionServer> server_;
};

}  // namespace hvd::launcher
