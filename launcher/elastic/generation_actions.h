// The orders of Generations. ElasticJob carries them out.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/plan/hosts.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

class GenerationActions {
 public:
  virtual ~GenerationActions() = default;
  // Start the agent of this host, for `slots` processes. prepared() or start_failed() follows, with the
  // same number, which add() got. Returns that number.
  virtual int start_host(const Host& host, int slots) = 0;
  // Start the processes of a host after prepared().
  virtual void start_processes(int host) = 0;
  // End all processes of a started host. Their exits do not count.
  virtual void end_host(int host) = 0;
  // End one process; its host has others. Its exit does not count.
  virtual void end_process(int process) = 0;
  // A generation begins. answer() follows for each of its processes.
  virtual void begin_generation(const rendezvous::Generation& generation) = 0;
  // The place is provisional for a process that is not a rank yet.
  virtual void answer(int process, int64_t request, const rendezvous::PlaceAnswer& answer) = 0;
  virtual void notify_updates(int32_t generation, rendezvous::HostUpdates updates) = 0;
  virtual void notify_loss(int32_t generation, const std::string& sentence) = 0;
  // The agent of this host ends by itself after these seconds.
  virtual void notify_leave(int host, double seconds) = 0;
  virtual void report(const std::string& sentence) = 0;
  // The job cannot go on. `process`: whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int process) = 0;
  // End all processes, and begin the job again with its history.
  virtual void restart() = 0;
};

}  // namespace hvd::launcher
