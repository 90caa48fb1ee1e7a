// Histories of what clients of a store did at once, and whether there is an order of their
// operations that explains what each of them saw (linearizability; Wing and Gong's search with
// memory of what was tried). Pure.
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
  enum class Kind { kSet, kGet, kAdd, kSwap, kRemove };

  int client = 0;
  Kind kind = Kind::kGet;
  std::string value;    // that was set or swapped in
  Held expected;        // by a swap
  int64_t amount = 0;   // that was added
  uint64_t called = 0;  // on one clock for all
  uint64_t returned = 0;
  // False: the client does not know whether it was done, or when, maybe much later.
  bool is_known = true;
  Held seen;  // by a get; what a swap found in the end; the sum, as text
  bool swapped = false;
};

std::string to_string(const Operation& operation);

// Operations on one key that nobody had set before. Nothing when they are linearizable; else a
// sentence that names the first operation that no order explains.
std::optional<std::string> find_fault(std::vector<Operation> history);

}  // namespace hvd::rendezvous
