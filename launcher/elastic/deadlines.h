// The time limits of an elastic job for processes that do not call hvd.init, do not enter hvd.elastic.run or do not
// notice a loss. Also the messages to the user during these waits. Class Generations and the policies abandon the
// processes that a Finding names. ElasticCore owns this object. No I/O, no clock.
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

// The times for printing a sentence about a wait: first at a given time, then every minute. No I/O, no clock.
class Reminder {
 public:
  static constexpr std::chrono::seconds kInterval{60};

  // Turns the reminder on, unless it is on.
  void start(Clock::time_point first) { next_ = next_.value_or(first); }
  void stop() { next_.reset(); }
  // Returns whether the sentence is due now. The caller must then print it.
  bool is_due(Clock::time_point now) {
    if (now < next()) return false;
    next_ = now + kInterval;
    return true;
  }
  // Returns the time of the next sentence; Time::max() if the reminder is off.
  Clock::time_point next() const { return next_.value_or(Clock::time_point::max()); }

 private:
  std::optional<Clock::time_point> next_;
};

class Deadlines {
 public:
  using Time = Clock::time_point;
  // How long a process may be silent before a sentence names it.
  static constexpr std::chrono::seconds kUntilNamed{5};

  struct LateProcess {
    int process = 0;
    std::string sentence;  // names the time and its flag
  };
  struct Finding {
    std::vector<LateProcess> late;       // the processes to abandon
    std::optional<std::string> end;      // why the job cannot continue
    std::vector<std::string> reminders;  // sentences for the user
    Time next = Time::max();             // the earliest time at which a check can find more
  };

  // The arguments must outlive this object.
  Deadlines(const GenerationLimits& limits, const HostTable& hosts)
      : limits_(limits), hosts_(hosts) {}

  void launch_began(Time now) { begun_ = now; }
  // Call before set_members() of the table.
  void generation_began(Time now);
  // Call when the first rank enters hvd.elastic.run.
  void entered_elastic_run(Time now);
  // Call when a process that the next generation awaits has requested its place.
  void asked(Time now);
  void rank_lost(Time now);
  // Call when new processes are about to get their places.
  void plan_made() { unprepared_.stop(); }

  // Returns whether a rank has requested the next generation and waits for other ranks.
  bool is_asked() const { return asking_since_.has_value(); }
  // Returns the time at which the launcher concludes that the program does not use hvd.elastic.run, if no rank has
  // entered it by then.
  Time end_of_entry() const;

  // Finds ranks that have not requested the next generation within the time limit after the first request.
  Finding silent(Time now);
  // Finds processes that have not requested their first place while ranks train.
  Finding slow(Time now);
  // Finds processes with a provisional place that have not requested the final place while ranks train.
  Finding unprepared(Time now);
  // Finds ranks that have not requested the next generation after a loss. A rank notices the loss only in its next
  // operation, which may begin late. `failure`: a sentence about the loss.
  Finding unaware(Time now, const std::string& failure);

 private:
  std::vector<const RankRun*> awaited() const;

  const GenerationLimits& limits_;
  const HostTable& hosts_;
  Time begun_{};
  Clock::duration first_start_{};     // from begun_ until the first ranks requested places
  Time first_began_{};                // when the first generation began
  Clock::duration first_work_{};      // from first_began_ until a rank entered hvd.elastic.run
  std::optional<Time> asking_since_;  // time of the first request for the next generation
  bool has_named_silent_ = false;
  // The time at which the first rank of this generation was lost.
  std::optional<Time> lost_since_;
  Reminder unaware_, unprepared_;
  std::map<int, Reminder> slow_;  // key: process
};

}  // namespace hvd::launcher
