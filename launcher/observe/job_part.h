// The parts of a launch that watch the job: one for each feature, in the order of launcher/observe/parts.cpp.
//
//     agent ---- message ----> JobLaunch ---- JobEvent ----> each part, in the order of the list
//                                  ^                            |
//                                  '------- PartLaunch ---------'   queries hosts, prints, ends the job
//
// A part receives events, and is called at the time that its deadline() returns: no periodic tick wakes an idle job.
// Parts never call each other: a part stores its results in RankRun or InitWaits, where other parts read them. JobParts
// owns the parts. All parts live on the launch's loop.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "launcher/hosts/host_table.h"
#include "launcher/observe/rules/init_waits.h"
#include "launcher/output/launch_events.h"
#include "launcher/output/output.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

class JobInspector;

// Sent shortly before the ranks start.
struct Starting {};
// Sent when the agents have started all ranks with which this launch begins.
struct AllStarted {};
// Sent when a rank has written output, or has closed its output.
struct RankWrote {
  int rank;
  bool is_end = false;
};
struct RankExited {
  const RankExit& exit;
};
// Sent when a rank has called hvd.init(), and when its hvd.init() has connected to the other ranks of a world. The
// states of the ranks (RankRun) were updated before.
struct RankJoined {
  const Joined& report;
};
// Sent when a rank has called MPI_Init, and when its MPI_Init has connected to the other ranks.
struct RankInMpi {
  const Joined& report;
};
// Sent at most once a second while the host does not answer. After `limit_seconds`, the host is lost.
struct HostSilent {
  const HostRun& host;
  double seconds, limit_seconds;
};
struct HostAnswered {
  const HostRun& host;
};
// Sent when the host is lost, or when its ranks have ended.
struct HostGone {
  const HostRun& host;
};
// Sent when the launcher continues after a stop, or when the user has typed a line.
struct TerminalChanged {};
// Sent when the launch begins to end all ranks.
struct JobEnding {};

using JobEvent =
    std::variant<Starting, AllStarted, RankWrote, RankExited, RankJoined, RankInMpi, HostSilent,
                 HostAnswered, HostGone, TerminalChanged, InputTaken, JobEnding>;

class JobPart : public std::enable_shared_from_this<JobPart> {
 public:
  virtual ~JobPart() = default;
  virtual void on(const JobEvent&) {}
  // Returns the time at which on_deadline() is due. Called after each event, each deadline and each task of
  // PartLaunch::run().
  virtual Clock::time_point deadline() const { return Clock::time_point::max(); }
  virtual void on_deadline() {}
  // Called when the job is over: ends running work. Neither events nor deadlines follow.
  virtual net::Task<void> end() {
    is_over_ = true;
    co_return;
  }

 protected:
  // True after end(). A task that still runs may then use the part, but not the launch.
  bool is_over_ = false;
};

// The functions of a launch that its parts may call. JobLaunch implements this interface.
class PartLaunch {
 public:
  virtual ~PartLaunch() = default;
  virtual net::asio::any_io_executor executor() = 0;
  virtual const Options& options() const = 0;
  const LaunchSettings& settings() const { return options().settings; }
  virtual const LaunchEvents& events() const = 0;
  virtual bool is_elastic() const = 0;
  virtual bool is_first() const = 0;  // the first launch of its job
  virtual double lease_seconds() const = 0;
  virtual Clock::time_point began() const = 0;  // start of the job's first launch
  virtual HostTable& hosts() = 0;
  virtual JobOutput& output() = 0;
  virtual InitWaits& init_waits() = 0;    // waits in hvd.init()
  virtual InitWaits& mpi_waits() = 0;     // waits in MPI_Init
  virtual JobInspector& inspector() = 0;  // queries the agents
  // Runs a task that shares ownership of the part, because the loop may outlive the launch.
  virtual void run(std::shared_ptr<JobPart> part, net::Task<void> task) = 0;

  virtual bool is_ending() const = 0;
  // Returns whether a rank has failed and the job waits for answers of silent hosts before it ends.
  virtual bool is_holding() const = 0;
  // Ends the job, because it cannot continue. `rank`: the rank whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int rank) = 0;
  // Ends the job, because a rank has ended and other ranks wait for it in `call`.
  virtual void end_wait(int rank, const std::vector<int>& waiting, const char* call) = 0;
  // Call in JobPart::end() if this script has ended: a scheduler may then have ended the job.
  virtual void script_ended(const std::string& script) = 0;
  // Returns whether a spare host can replace this host.
  virtual bool has_spare(const HostRun& host) const = 0;
  // Ends the job. The next launch replaces this host.
  virtual void replace(const HostRun& host, const std::string& sentence) = 0;
  // Reports TerminalChanged. Call after the user has typed a line.
  virtual void redraw() = 0;
};

// Returns one group of values that the agents report, for running ranks only, by the rank's number in the table.
// `answers`: the answers to sample() or ask(), from which the values are moved.
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

// The parts of a launch, with a single timer for their deadlines. JobLaunch owns this object.
class JobParts {
 public:
  JobParts(net::asio::any_io_executor executor, std::vector<std::shared_ptr<JobPart>> parts);
  ~JobParts();
  JobParts(const JobParts&) = delete;

  void report(const JobEvent& event);
  void run(std::shared_ptr<JobPart> part, net::Task<void> task);
  net::Task<void> end();

 private:
  struct State;
  static void arm(const std::shared_ptr<State>& state);

  // Shared by the timer and the tasks, because the loop may outlive the launch.
  const std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
