// Answers the launcher's questions about the places of the ranks, from the kernel state of their processes and from
// Python stacks. The ranks provide their stacks, or py-spy reads them. py-spy stops a process only for native stacks.
// Waits on the agent's thread only briefly, for stacks that ranks provide. The agent owns this object. Lives on the
// agent's loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/ranks/helper_command.h"
#include "launcher/agent/ranks/ranks.h"
#include "launcher/agent/stacks/py_spy.h"
#include "launcher/agent/stacks/python_stack.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class Inspections {
 public:
  // `ranks` must outlive this object. `send` gets Inspected, Sampled, StackToolWanted. `folders` returns
  // agent_folders().
  Inspections(net::EventLoop& loop, Ranks& ranks, std::function<void(const Message&)> send,
              std::function<std::vector<std::string>()> folders);
  ~Inspections();

  void offer(const StackToolOffer& offer) { py_spy_.offer(offer); }
  void begin(const Inspect& question);
  // Inspects the rank the next time that other ranks wait for this rank.
  void begin(const InspectLate& question);

  bool wants_part() const { return py_spy_.wants_part(); }
  Status take(const StagePart& part) { return py_spy_.take(part); }
  uint64_t taken() const { return py_spy_.taken(); }
  // Call for every reaped process that is not a rank.
  void on_reaped(pid_t pid, int status);
  Deadline deadline() const;
  void on_deadline();

 private:
  struct Inquiry;
  struct Sample;

  void choose(Inquiry& inquiry, size_t rank);
  void advance_all();
  void advance(Inquiry& inquiry);
  void start(Inquiry& inquiry, Sample& sample, const std::string& program);
  void take_outcome(Inquiry& inquiry, Sample& sample, const HelperCommandOutcome& outcome);
  static void give_up(Sample& sample, const std::string& why);
  void add_stack(Inquiry& inquiry, Sample& sample, PythonStack stack);
  static void describe(const Inquiry& inquiry, Sample& sample);
  void answer(Inquiry& inquiry);
  static std::vector<RankPlace> places(const Inquiry& inquiry);

  net::EventLoop& loop_;
  Ranks& ranks_;
  const std::function<void(const Message&)> send_;
  const std::function<std::vector<std::string>()> folders_;
  PySpy py_spy_;
  std::list<std::unique_ptr<Inquiry>> inquiries_;
  // Ended helpers, until their callbacks have returned.
  std::vector<std::unique_ptr<HelperCommand>> ended_;
};

}  // namespace hvd::launcher
