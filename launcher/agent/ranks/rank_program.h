// The program of a rank, from the agent's looks at processes: its library and its connections, the changes of its
// variables, and how long it has been alone. Class Ranks owns an object for each rank. Pure: each call carries its
// time.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/process/spawn.h"
#include "launcher/agent/host/library_users.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

class RankProgram {
 public:
  // `given`: the environment that the launcher has given to the rank.
  void see(const LibraryUsers::Program& program, const Environment& given, Clock::time_point now);

  bool has_torch() const { return program_.library == LibraryUsers::kTorch; }
  bool has_library() const { return program_.library != 0; }
  // Returns whether the program has changed variables and no connection to another process, and may use PyTorch.
  bool may_search() const;
  // Until the agent has read the program's variables, the list has one element, without a name.
  const std::vector<VariableChange>& changes() const { return changes_; }
  void add_to(RankSigns& signs) const;

 private:
  LibraryUsers::Program program_;
  std::vector<VariableChange> changes_ = std::vector<VariableChange>(1);
  // Times of the first and the last of the successive looks that saw PyTorch and no connection. nullopt: the last look
  // saw a connection, or no PyTorch.
  std::optional<std::pair<Clock::time_point, Clock::time_point>> alone_;
};

}  // namespace hvd::launcher
