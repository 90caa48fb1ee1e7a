// The policy for changes of a program's ranks: an interface with two implementations. With ElasticRun, the processes
// stay and request their next places. With RestartProgram, all processes end, and the program starts again. Class
// Generations chooses one of these policies for each event.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace hvd::launcher {

struct ProcessFailure {
  int process = 0;
  int exit_code = 0;
  std::string sentence;  // describes how the process ended
  // The line with the name of the exception that ended the process, or empty.
  std::string exception = "";
};

class ProgramPolicy {
 public:
  using Time = Clock::time_point;
  virtual ~ProgramPolicy() = default;

  // Call when a process has failed. The cause may be another failure, of which a report comes later.
  virtual void failed(const ProcessFailure& failure, Time now) = 0;
  // Call when a rank failed at `since`, and the cause is the rank itself, as far as the launcher knows.
  virtual void settle(const ProcessFailure& failure, Time since, Time now) = 0;
  // Call when a host with ranks is lost. `consequence`: the sentence with the consequence for the host.
  virtual void host_lost(const std::string& sentence, const std::string& consequence, Time now) = 0;
  // Starts, ends and notifies processes as the current hosts and processes require. Returns whether a generation has
  // begun.
  virtual bool decide(Time now) = 0;

  // Returns the clause "when WHOSE next commit", for a sentence to the user.
  virtual std::string when_they_leave(const std::string& whose, Time now) const = 0;
  // Returns "when the new ones have started".
  virtual std::string when_they_come() const = 0;
  // Returns "its ranks have N s for their next commit", for a host that ends after this time.
  virtual std::string until_host_ends(int64_t seconds) const = 0;
};

}  // namespace hvd::launcher
