// The last call of each client with its answer, so that a repeated call gets the same answer and
// changes nothing. Owns these answers and writes them to the durable store; never touches a key or a
// fence. Pure; lives with the State that owns it, on one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "rendezvous/store/value.h"

namespace hvd::rendezvous {

class DurableStore;

// Names one call of one client, so that a repetition is recognised. A client makes one such call
// at a time, and counts up. Without a client nothing is remembered.
struct CallId {
  std::string client;
  uint64_t sequence = 0;
};

class AnsweredCalls {
 public:
  struct Answer {
    uint64_t sequence = 0;
    Status status;
    int64_t number = 0;
    ValuePtr value;
  };

  // From here on, each record is written to `durable`.
  void write_to(DurableStore* durable) { durable_ = durable; }

  // The answer to a call that is not new; an error to one that is older than the client's last.
  std::optional<Answer> recall(const CallId& call) const;
  void remember(const CallId& call, Status status, int64_t number = 0, ValuePtr value = {});
  // Calls that changed nothing are not recorded: repeating them does no harm.
  void record(const CallId& call, int64_t number);

 private:
  DurableStore* durable_ = nullptr;  // null: nothing is stored
  std::unordered_map<std::string, Answer> last_;
  std::deque<std::string> clients_;  // of last_, the oldest first
};

}  // namespace hvd::rendezvous
