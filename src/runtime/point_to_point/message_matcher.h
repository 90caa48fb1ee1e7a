// Matches messages with receives. Keeps messages that arrived before their receives, and receives that wait
// for messages. A receive gets the oldest matching message, and a message goes to the oldest matching
// receive. A receive matches a message of its process set and tag from the sender that it names, or from any sender if
// it names none. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

// A message without a receive.
struct ArrivedMessage {
  uint32_t set = 0;  // serial number of the process set
  int32_t tag = 0;
  int32_t source = 0;
  int32_t dtype = HVD_UINT8;
  uint64_t count = 0;
  uint64_t id = 0;               // id of an offer; 0: `data` is the message
  Submission* sender = nullptr;  // an offer of this rank to itself
  Bytes data;                    // message, or an offer's place in shared memory
};

class MessageMatcher {
 public:
  // Returns the message for a receive, or nullptr: the receive then waits in order.
  std::unique_ptr<ArrivedMessage> match(Submission* receive);
  // Removes and returns the waiting receive for a message; nullptr if none waits.
  Submission* match(uint32_t set, int32_t tag, int32_t source);
  // Keeps a message for which no receive waits.
  void keep(std::unique_ptr<ArrivedMessage> message);

  // Removes a waiting receive.
  void drop(const Submission* receive);
  // Removes and returns a rank's offer; nullptr if it has none with this id.
  std::unique_ptr<ArrivedMessage> take_offer(int32_t source, uint64_t id);
  // Removes and returns the messages of a process set.
  std::vector<std::unique_ptr<ArrivedMessage>> take_messages(uint32_t set);
  void clear();

 private:
  struct Key {
    uint32_t set;
    int32_t tag;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return (static_cast<size_t>(key.set) << 32 | static_cast<uint32_t>(key.tag)) *
             0x9e3779b97f4a7c15U;
    }
  };
  // Receives and messages of one set and tag that do not match each other.
  struct Queues {
    std::deque<Submission*> receives;
    std::deque<std::unique_ptr<ArrivedMessage>> messages;
  };
  using Table = std::unordered_map<Key, Queues, Hash>;
  void tidy(Table::iterator found);

  Table table_;
};

}  // namespace hvd::runtime
