// Answers those that look into the job from another terminal: `horovodrun ps`, `stack` and `exec`. Owns
// the socket that they call, their questions and the commands that run beside ranks; never changes how
// the job runs. Lives in a job's launch, on its loop.
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

class JobInspector {
 public:
  // All of these outlive this.
  JobInspector(const net::asio::any_io_executor& executor, const Options& options,
               const SlotPlan& plan, const Supervisor& supervisor,
               const std::vector<std::unique_ptr<AgentLink>>& links);

  // From here on it can be called. A job does without where that fails.
  void open();
  // Where the ranks of each host are, with their stacks; empty where nothing came.
  net::Task<std::vector<std::string>> stacks() { return inspection_.run(true); }

  // What the agents report.
  void on_inspected(int host, uint32_t number, const std::string& text) {
    inspection_.on_answer(static_cast<size_t>(host), number, text);
  }
  void on_said(const Said& said) { commands_.on_said(said); }
  void on_ran(const Ran& ran) { commands_.on_ran(ran); }
  void on_host_gone(int host) { commands_.on_host_gone(host); }

 private:
  net::Task<void> answer(std::string request, net::StreamSocket& caller);

  const net::asio::any_io_executor executor_;
  const Options& options_;
  const SlotPlan& plan_;
  const Supervisor& supervisor_;
  Inspection inspection_;
  RankCommands commands_;
  std::unique_ptr<InspectionServer> server_;
};

}  // namespace hvd::launcher
