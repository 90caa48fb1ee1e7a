// Checks whether the history of concurrent clients of a store is linearizable: some order of the
// operations explains every result. Uses the search of Wing and Gong with memoized states. No I/O;
// linearizability_test.cpp records the histories.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::rendezvous {

using Held = std::optional<std::string>;

struct Operation {
  enum class Kind { kSet, kGet, kSwap, kRemove };

  int client = 0;
  Kind kind = Kind::kGet;
  std::string value;    // new value of a set or swap
  Held expected;        // expected value of a swap
  uint64_t called = 0;  // time of the call, on one clock for all clients
  uint64_t returned = 0;
  // False: the client does not know whether or when the operation took place, possibly much later.
  bool is_known = true;
  Held seen;  // result of a get; value after a swap
  bool swapped = false;
};

std::string to_string(const Operation& operation);

// `history`: all operations on one key, which was absent before. Returns nothing if the history is
// linearizable; else an error that names the first operation that no order explains.
std::optional<std::string> find_fault(std::vector<Operation> history);

}  // namespace hvd::rendezvous
