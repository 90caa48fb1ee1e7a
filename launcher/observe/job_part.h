// The parts of a launch that watch the job: one for each feature, in the order of the list in launcher/observe/parts.cpp.
//
//     agent ---- message ----> JobLaunch ---- JobEvent ----> each part, in the order of the list
//                                  ^                            |
//                                  '------- PartLaunch ---------'   asks hosts, prints, ends the job
//
// A part receives events, and is called at the time that its deadline() returns: no tick wakes a job in which nothing
// is due. Parts never call each other: a part stores its results in RankRun, HostRun or InitWaits, where other parts
// read them. JobParts owns the parts. They live on the launch's loop.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "launcher/hosts/host_table.h"
#include "launcher/observe/rules/init_waits.h"
#include "launcher/output/launch_progress.h"
#include "launcher/output/output.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/protocol/protocol.h"
#include "launcher/state/launch_events.h"
#include "net/asio.h"

namespace hvd::launcher {

// The ranks are about to start.
struct Starting {};
// All ranks with which the launch begins run.
struct AllStarted {};
// A rank has written something, or will write no more.
struct RankWrote {
  int rank;
  bool is_end = false;
};
struct RankExited {
  const RankExit& exit;
};
// A rank is about to join a world, or has joined it. The states of the ranks (RankRun) are updated before this event.
struct RankJoined {
  const Joined& report;
};
// A rank has called MPI_Init, or has met the others there.
struct RankInMpi {
  const Joined& report;
};
// The host has not answered for so long; beyond the limit it is lost. Repeated every second at most.
struct HostSilent {
  const HostRun& host;
  double seconds, limit_seconds;
};
struct HostAnswered {
  const HostRun& host;
};
// The host is lost, or its ranks have ended.
struct HostGone {
  const HostRun& host;
};
// The launcher goes on after it was stopped, or the user has typed a line.
struct TerminalChanged {};
// All ranks are being ended.
struct JobEnding {};

using JobEvent =
    std::variant<Starting, AllStarted, RankWrote, RankExited, RankJoined, RankInMpi, HostSilent,
                 HostAnswered, HostGone, TerminalChanged, InputTaken, JobEnding>;

class JobPart : public std::enable_shared_from_this<JobPart> {
 public:
  virtual ~JobPart() = default;
  virtual void on(const JobEvent&) {}
  // When on_deadline() is due. Read after each event and each task of PartLaunch::run().
  virtual Clock::time_point deadline() const { return Clock::time_point::max(); }
  virtual void on_deadline() {}
  // The job is over: ends what runs. Neither events nor deadlines follow.
  virtual net::Task<void> end() {
    is_over_ = true;
    co_return;
  }

 protected:
  // True after end(). A task that still runs then uses no object but the part.
  bool is_over_ = false;
};

// The progress of a job, as of the last sample of its ranks.
struct JobCounts {
  JobProgress job{};  // without rates
  ProgressRates::Counts counts{};
  Clock::time_point read_at{};  // the counts
};

// The launch as its parts use it. JobLaunch implements it.
class PartLaunch {
 public:
  virtual ~PartLaunch() = default;
  virtual net::asio::any_io_executor executor() = 0;
  virtual const LaunchSettings& settings() const = 0;
  virtual const LaunchEvents& events() const = 0;
  virtual bool is_elastic() const = 0;
  virtual double lease_seconds() const = 0;
  virtual Clock::time_point began() const = 0;  // the first launch of the job
  virtual HostTable& hosts() = 0;
  virtual JobOutput& output() = 0;
  virtual InitWaits& init_waits() = 0;  // in hvd.init()
  virtual InitWaits& mpi_waits() = 0;   // in MPI_Init
  // Runs a task that shares the part: the loop may outlive the launch.
  virtual void run(std::shared_ptr<JobPart> part, net::Task<void> task) = 0;

  // Asks the agents, by host.
  virtual net::Task<std::vector<HostAnswer>> ask(InspectDetail detail) = 0;
  virtual net::Task<std::vector<HostAnswer>> sample(SampleGroups groups) = 0;
  // Where a rank of the table is while others wait for it.
  virtual net::Task<std::vector<RankPlace>> ask_place(int number, uint32_t late_microseconds) = 0;
  virtual net::Task<JobCounts> counts() = 0;
  // The metrics in Prometheus's format, at the level of --metrics-level.
  virtual net::Task<std::string> metrics() = 0;
  // Prints where all ranks are.
  virtual net::Task<void> show_stacks() = 0;

  virtual bool is_ending() const = 0;
  // Whether the failure of a rank waits for hosts that are silent: it will end the job.
  virtual bool is_holding() const = 0;
  // The job cannot go on. `rank`: whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int rank) = 0;
  // A rank has ended, and others wait for it in `call`.
  virtual void end_wait(int rank, const std::vector<int>& waiting, const char* call) = 0;
  // Whether a spare host can take the place of this one.
  virtual bool has_spare(const HostRun& host) const = 0;
  // The job ends, to start again without this host.
  virtual void replace(const HostRun& host, const std::string& sentence) = 0;
  // The user has typed a line: reports TerminalChanged.
  virtual void redraw() = 0;
};

// The values of a group that each agent reports about the ranks of its own host that run, by rank of the table. `answers`:
// to sample() or ask(); its values are moved from.
template <typename Each>
std::map<int, Each> of_running_ranks(const HostTable& hosts, std::vector<HostAnswer>& answers,
                                     std::vector<Each> HostSample::*group) {
  std::map<int, Each> found;
  for (size_t number = 0; number < answers.size(); ++number) {
    for (Each& each : answers[number].sample.*group) {
      const bool is_own = hosts.has_rank(each.rank) && !hosts.rank(each.rank).is_over() &&
                          hosts.rank(each.rank).host().number() == static_cast<int>(number);
      if (is_own) found.emplace(each.rank, std::move(each));
    }
  }
  return found;
}

// The parts of a launch, with the one timer of their deadlines. JobLaunch owns it.
class JobParts {
 public:
  JobParts(net::asio::any_io_executor executor, std::vector<std::shared_ptr<JobPart>> parts);
  ~JobParts();
  JobParts(const JobParts&) = delete;

  void report(const JobEvent& event);
  // As PartLaunch::run().
  void run(std::shared_ptr<JobPart> part, net::Task<void> task);
  net::Task<void> end();

 private:
  struct State;
  static void arm(const std::shared_ptr<State>& state);

  // The timer and the tasks share it: the loop may outlive the launch.
  const std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
