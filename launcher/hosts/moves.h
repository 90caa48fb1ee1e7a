// A table of the legal moves between the states of an object. HostRun and RankRun check each move by theirs.
#pragma once

#include <algorithm>
#include <span>

namespace hvd::launcher {

template <typename State, typename Cause>
struct Move {
  State from;
  Cause cause;
  State to;

  friend bool operator==(const Move&, const Move&) = default;
};

template <typename State, typename Cause>
bool is_legal(std::span<const Move<State, Cause>> moves, const Move<State, Cause>& move) {
  return std::find(moves.begin(), moves.end(), move) != moves.end();
}

}  // namespace hvd::launcher
