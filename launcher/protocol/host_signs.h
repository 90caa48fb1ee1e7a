// The answers of an agent to Inspect with InspectDetail::kSigns and kPlaces: what shows whether its ranks move, and
// where each of them is. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// Counts since the start of the processes of a rank. A rank moves when one changes.
struct RankSigns {
  int32_t rank = 0;  // number of its process in the plan
  // A process is stopped or traced, or reads what a user types: nobody knows how long that takes.
  uint8_t is_excused = 0;
  uint8_t is_hidden = 0;   // the agent may not read all of this
  uint64_t processes = 0;  // a digest of the processes and their sockets
  // Time in which the main thread of its Python had a processor, or waited for one.
  uint64_t main_microseconds = 0;
  // CPU time of all other threads and processes, and the sum of their waits for a processor.
  uint64_t other_microseconds = 0, other_delay_microseconds = 0;
  uint64_t bytes = 0, calls = 0;  // of read(2), write(2) and their kin
  uint64_t storage_bytes = 0;     // read and written, also through mapped files
  uint64_t socket_bytes = 0;      // received and sent by TCP
  static auto fields(auto& m) {
    return std::tie(m.rank, m.is_excused, m.is_hidden, m.processes, m.main_microseconds,
                    m.other_microseconds, m.other_delay_microseconds, m.bytes, m.calls,
                    m.storage_bytes, m.socket_bytes);
  }
};

// Texts are not escaped, and have at most kMostPlaceText bytes each.
struct RankPlace {
  int32_t rank = 0;
  uint8_t is_excused = 0;     // it is in a debugger
  uint8_t is_collective = 0;  // it waits for other ranks
  std::string library{};      // in which it waits: "torch.distributed (gloo)"; empty: no known one
  std::string operation{};    // "all_reduce"
  std::string function{};     // the user's function, or the library's that this one has called
  std::string line{};         // "train.py:88", the user's line; empty: without a Python stack
  std::string state{};        // of the kernel: "sleeping in futex_wait (python3 train.py)"
  uint64_t frames = 0;        // a digest of its stack, or of `state`
  std::string no_stack{};     // why its Python stack could not be read, as a sentence
  static auto fields(auto& m) {
    return std::tie(m.rank, m.is_excused, m.is_collective, m.library, m.operation, m.function,
                    m.line, m.state, m.frames, m.no_stack);
  }
};
inline constexpr size_t kMostPlaceText = 400;

std::string encode(const std::vector<RankSigns>& signs);
std::string encode(const std::vector<RankPlace>& places);
Result<std::vector<RankSigns>> decode_signs(std::string_view bytes);
Result<std::vector<RankPlace>> decode_places(std::string_view bytes);

}  // namespace hvd::launcher
