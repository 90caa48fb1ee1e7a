// The table of each client's last call and its answer: a repeated call gets the same answer and changes
// nothing. Owns these answers and writes them to the durable store; never touches a key.
// No I/O. StoreState owns it and calls it, on one thread at a time.
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

// Identifies one call of one client, which makes a repetition recognisable. A client makes one such
// call at a time, with increasing numbers. A call with an empty client is not remembered.
struct CallId {
  std::string client;
  uint64_t sequence = 0;
};

class AnsweredCalls {
 public:
  struct Answer {
    uint64_t sequence = 0;
    Status status;
    bool swapped = false;  // compare-and-set: whether it set the key
    ValuePtr value;        // compare-and-set: the current value
  };

  // From now on, each record is written to `durable`.
  void write_to(DurableStore* durable) { durable_ = durable; }

  // The answer to a repeated call; nothing for a new call. For a call older than the client's last
  // one, the answer is an error.
  std::optional<Answer> recall(const CallId& call) const;
  void remember(const CallId& call, bool swapped = false, ValuePtr value = {});
  // Writes a call to the durable store. For calls that changed something: the next server may execute
  // the others again.
  void record(const CallId& call, bool swapped = false);

 private:
  DurableStore* durable_ = nullptr;  // null: nothing is stored
  std::unordered_map<std::string, Answer> last_;
  std::deque<std::string> clients_;  // keys of last_, the oldest first
};

}  // namespace hvd::rendezvous
