// A table of the legal state transitions of an object. The object checks each transition against the table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {

// A set of states of an enum with at most 32 values.
template <typename State>
class StateSet {
 public:
  constexpr StateSet(std::initializer_list<State> states) {
    for (const State state : states) bits_ |= bit(state);
  }
  constexpr bool contains(State state) const { return (bits_ & bit(state)) != 0; }

 private:
  static constexpr uint32_t bit(State state) { return uint32_t{1} << static_cast<unsigned>(state); }
  uint32_t bits_ = 0;
};

// A row of the table: the transition is legal from each of these states. Some tables also require a cause.
template <typename State, typename Cause = std::monostate>
struct Move {
  StateSet<State> from;
  State to;
  Cause cause = {};
};

template <typename State, typename Cause, size_t kSize>
constexpr bool is_legal(const Move<State, Cause> (&table)[kSize], State from, State to,
                        std::type_identity_t<Cause> cause = {}) {
  return std::any_of(std::begin(table), std::end(table), [&](const Move<State, Cause>& move) {
    return move.from.contains(from) && move.to == to && move.cause == cause;
  });
}

// Ends the process: the table of the object lacks this move.
[[noreturn]] inline void refuse_move(const std::string& object, std::string_view from,
                                     std::string_view to, std::string_view cause = {}) {
  const std::string by = cause.empty() ? "" : cat(" (", cause, ")");
  check_failed(__FILE__, __LINE__, cat(object, ": ", from, " -> ", to, by).c_str());
}

}  // namespace hvd::launcher
