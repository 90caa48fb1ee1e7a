// The policy for changes of a program's ranks: an interface with two implementations. ElasticRun: the processes stay
// and request their next places. RestartProgram: all processes end, and the program starts again. Generations chooses
// between them for each event.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace hvd::launcher {

struct ProcessFailure {
  int process = 0;
  int exit_code = 0;
  std::string sentence;        // describes how the process ended
  std::string exception = "";  // the line with the name of the exception that ended it, or empty
};

class ProgramPolicy {
 public:
  using Time = Clock::time_point;
  virtual ~ProgramPolicy() = default;

  // A process has failed. The cause may be another failure, which is reported later.
  virtual void failed(const ProcessFailure& failure, Time now) = 0;
  // A rank failed at `since`, and the cause is the rank itself, as far as the launcher knows.
  virtual void settle(const ProcessFailure& failure, Time since, Time now) = 0;
  // A host with ranks is lost. `consequence`: the sentence with the consequence for the host.
  virtual void host_lost(const std::string& sentence, const std::string& consequence, Time now) = 0;
  // Starts, ends and notifies processes as the present hosts and processes require. Returns whether a generation has
  // begun.
  virtual bool decide(Time now) = 0;

  // These return parts of sentences. "when WHOSE next commit".
  virtual std::string when_they_leave(const std::string& whose, Time now) const = 0;
  // "when the new ones have started".
  virtual std::string when_they_come() const = 0;
  // "its ranks have N s for their next commit": for a host that ends after this time.
  virtual std::string until_host_ends(int64_t seconds) const = 0;
};

}  // namespace hvd::launcher
