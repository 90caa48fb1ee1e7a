// The time limits of an elastic job for processes that do not call hvd.init, do not enter hvd.elastic.run or do not
// notice a loss, and the messages to the user meanwhile. ElasticCore owns one; Generations and the policies pass it the
// events, and abandon the processes that it returns. No I/O, no clock.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

// The times at which a sentence about a wait is printed: first at a given time, then every minute. No I/O, no clock.
class Reminder {
 public:
  static constexpr std::chrono::seconds kInterval{60};

  // Does nothing while it is on.
  void start(Clock::time_point first) { next_ = next_.value_or(first); }
  void stop() { next_.reset(); }
  // Returns whether the sentence is due now, and then expects that the caller prints it.
  bool is_due(Clock::time_point now) {
    if (now < next()) return false;
    next_ = now + kInterval;
    return true;
  }
  // Time::max(): it is off.
  Clock::time_point next() const { return next_.value_or(Clock::time_point::max()); }

 private:
  std::optional<Clock::time_point> next_;
};

class Deadlines {
 public:
  using Time = Clock::time_point;
  // How long a process may be silent before it is named.
  static constexpr std::chrono::seconds kUntilNamed{5};

  struct LateProcess {
    int process = 0;
    std::string sentence;  // names the time and its flag
  };
  // The result of a check.
  struct Finding {
    std::vector<LateProcess> late;       // to be given up
    std::optional<std::string> end;      // why the job cannot go on
    std::vector<std::string> reminders;  // sentences for the user
    Time next = Time::max();             // a check has no other result before
  };

  // The arguments outlive this object.
  Deadlines(const GenerationLimits& limits, const HostTable& hosts)
      : limits_(limits), hosts_(hosts) {}

  void launch_began(Time now) { begun_ = now; }
  // The table does not have it yet.
  void generation_began(Time now);
  // The first of the ranks.
  void entered_elastic_run(Time now);
  // A rank has asked for the next generation.
  void asked(Time now);
  void rank_lost(Time now);
  // New processes know their places, and prepare.
  void plan_made() { unprepared_.stop(); }

  // Ranks have asked for the next generation, and wait for others.
  bool is_asked() const { return asking_since_.has_value(); }
  // From then on, ranks that have not entered hvd.elastic.run count as a program without it.
  Time end_of_entry() const;

  // Ranks that have not asked for the next generation after the first one did.
  Finding silent(Time now);
  // Processes that have not asked for their first place, while ranks train.
  Finding slow(Time now);
  // Processes that have a provisional place and do not ask for the final one, while ranks train.
  Finding unprepared(Time now);
  // Ranks that have not asked for the next generation since a loss: they do so at their next operation, which may be
  // late. `failure`: a sentence about the loss.
  Finding unaware(Time now, const std::string& failure);

 private:
  std::vector<const RankRun*> awaited() const;

  const GenerationLimits& limits_;
  const HostTable& hosts_;
  Time begun_{};
  Clock::duration first_start_{};  // from begun_ until the first ranks had asked for their places
  Time first_began_{};             // the first generation
  Clock::duration first_work_{};   // from then until a rank of it entered hvd.elastic.run
  std::optional<Time> asking_since_;  // the first request for the next generation
  bool has_named_silent_ = false;
  std::optional<Time> lost_since_;  // a rank, while none has asked for the next generation
  Reminder unaware_, unprepared_;
  std::map<int, Reminder> slow_;  // by process
};

}  // namespace hvd::launcher
