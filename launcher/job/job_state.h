// One running launch, for job.cpp alone; job.h is the way in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/secrets/secret.h"
#include "launcher/job/host_jobs.h"
#include "launcher/job/host_startup.h"
#include "launcher/job/job.h"
#include "launcher/job/job_inspector.h"
#include "launcher/job/job_signals.h"
#include "launcher/job/master_endpoint.h"
#include "launcher/job/parent_process.h"
#include "launcher/job/supervisor.h"
#include "launcher/link/agent_link.h"
#include "launcher/link/join_queue.h"
#include "launcher/output/output.h"
#include "launcher/output/rank_errors.h"
#include "launcher/output/standard_input.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class JobLaunch {
 public:
  JobLaunch(const Options& options, const SlotPlan& plan, uint32_t generation,
            JoinQueue* join_queue);
  JobLaunch(const JobLaunch&) = delete;

  ~JobLaunch();
  JobEnd run();

 private:
  // What one agent reports, with the host it speaks for.
  struct HostEvents;

  Status find_places();
  net::Task<int> run_all();
  net::Task<int> prepare();
  net::Task<void> start();
  net::Task<void> end_in_time(double seconds);

  void tell_thread_shares();
  void start_input();
  std::optional<rendezvous::ScopeSizes> original_scopes() const;
  net::Task<void> time_out(double seconds);
  void on_end_signal(int number);
  std::optional<int> left_by(int rank) const;
  net::Task<void> await_cause();
  // `signal`: that asked for it, or 0.
  void act(Supervisor::Action action, int signal = 0);
  void tell_the_end();
  RankContext context_of(int rank) const;
  void end_all(double grace, int signal = 0);
  void drop_links();

  const Options& options_;
  const SlotPlan& plan_;
  const uint32_t generation_;
  JoinQueue* const join_queue_;
  net::asio::io_context own_loop_{1};  // destroyed after all that lives on it
  net::asio::io_context& loop_;        // the join_queue's, where there is one
  Supervisor supervisor_;
  Secret secret_;
  HostJobs host_jobs_;
  JobSignals signals_;
  net::asio::steady_timer changed_;  // cancelled when the job's state changes
  net::asio::steady_timer give_up_;
  net::asio::steady_timer cause_;
  net::asio::steady_timer timeout_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<rendezvous::Server> server_;
  std::vector<std::unique_ptr<HostEvents>> events_;
  HostStartup startup_;
  std::vector<std::unique_ptr<AgentLink>> links_;
  MasterEndpoints master_endpoints_;
  std::vector<int> failed_hosts_;
  bool is_ended_by_user_ = false;
  int interrupt_ = 0;   // the signal that came before anything was started
  size_t started_ = 0;  // hosts
  std::unique_ptr<StandardInput> input_;
  std::unique_ptr<ParentProcess> parent_process_;
  JobInspector inspector_;
};

// What one agent reports, with the host it speaks for.
struct JobLaunch::HostEvents : AgentEvents {
  HostEvents(JobLaunch& job, int host) : job(job), host(host) {}
  void on_output(int rank, OutputStream stream, ByteView bytes) override {
    job.output_->write(rank, stream, bytes);
  }
  void on_output_end(int rank, OutputStream stream) override { job.output_->end(rank, stream); }
  void on_inspected(uint32_t number, const std::string& text) override {
    job.inspector_.on_inspected(host, number, text);
  }
  void on_input_taken(int rank, size_t size) override {
    if (job.input_) job.input_->taken(rank, size);
  }
  void on_exit(const RankExit& exit) override {
    job.act(job.supervisor_.on_exit(exit, job.left_by(exit.rank)),
            exit.signal == SIGTERM ? SIGTERM : 0);
  }
  void on_joined(int rank, int world_rank, int world_size) override {
    // Who asks each host what works there (--check-build -H) makes worlds of one to see it.
    if (is_question(job.options_)) return;
    job.act(job.supervisor_.on_joined(rank, world_rank, world_size));
  }
  void on_said(const Said& said) override { job.inspector_.on_said(said); }
  void on_ran(const Ran& ran) override { job.inspector_.on_ran(ran); }
  void on_signalled(int number) override { job.signals_.pass_on(number, host); }
  void on_ending(const std::string& why) override {
    job.act(job.supervisor_.on_agent_ending(host, why), SIGTERM);
  }
  void on_finished() override {
    job.act(job.supervisor_.on_finished(host));
    job.inspector_.on_host_gone(host);
  }
  void on_lost(const Status& why) override {
    job.failed_hosts_.push_back(host);
    job.act(job.supervisor_.on_lost(host, why));
    job.inspector_.on_host_gone(host);
  }
  void on_store_connection(net::StreamSocket socket) override {
    job.server_->adopt(std::move(socket));
  }
  JobLaunch& job;
  int host;
};

}  // namespace hvd::launcher
