// The messages of the stall inspectors, and the report of a stall: formats it as lines of the log and as a line of
// JSON. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/wire/value_bytes.h"

namespace hvd::runtime {

// Messages between the stall inspectors of a job, as bytes. StallInspector sends the messages
// over the service bus. decode() checks the size, and the states of an answer.
//
//   hello    rank -> root   once: the rank's host and process, for reports about a rank that does not answer
//   waiting  rank -> root   work of this rank has been pending for longer than the warning time
//   ask      root -> all    names that may be stalled
//   answer   rank -> root   the rank's state for each of these names, and what the rank does now
enum class StallMessageKind : uint8_t { kHello = 1, kWaiting = 2, kAsk = 3, kAnswer = 4 };

// Each message contains the members of its struct, in their order.
struct StallHello {
  static constexpr auto kKind = StallMessageKind::kHello;
  std::string host;
  int64_t pid = 0;
};

struct StallName {
  int32_t process_set = 0;
  std::string name;
  // The ranks that take part: the other rank of a send or receive, or the members of a group or of a
  // named process set that is added or removed. Empty: all members of the set.
  std::vector<int32_t> awaited = {};
  auto operator<=>(const StallName&) const = default;
  bool awaits(int32_t rank) const {
    return awaited.empty() || std::find(awaited.begin(), awaited.end(), rank) != awaited.end();
  }
};

struct StallWaiting {
  static constexpr auto kKind = StallMessageKind::kWaiting;
  struct Entry {
    StallName name;
    int32_t op = 0;
    double seconds = 0;  // time pending on this rank
  };
  std::vector<Entry> entries;
};

struct StallAsk {
  static constexpr auto kKind = StallMessageKind::kAsk;
  uint32_t inquiry = 0;
  std::vector<StallName> names;
};

enum class StallState : uint8_t {
  kMissing = 0,  // not submitted
  kWaiting = 1,  // submitted, not agreed on
  kRunning = 2,  // agreed on, not complete
  kExcused = 3,  // not a member of the process set, joined, or not awaited
};

struct StallAnswer {
  static constexpr auto kKind = StallMessageKind::kAnswer;
  uint32_t inquiry = 0;
  std::vector<StallState> states;  // state of each name in the question, in the same order
  std::string last_name;           // name of the last submission; empty: none yet
  int32_t last_op = 0;
  double last_seconds = 0;   // age of the last submission
  std::string last_program;  // compiled program that submitted it; may be empty
  // The Python stack of a rank that has not submitted an operation; `note`: the kernel's information, without Python.
  std::string stack;
  std::string note;
  std::string place;  // line at which a rank waits, for example "train.py:88 in main"; or empty
};

Status peek_kind(ByteView message, StallMessageKind* kind);
template <typename Message>
requires(std::is_same_v<const StallMessageKind, decltype(Message::kKind)>) void encode(
    const Message& message, ByteWriter& out) {
  out.put(Message::kKind);
  put(out, message);
}
Status decode(ByteView message, StallHello* hello);
Status decode(ByteView message, StallWaiting* waiting);
Status decode(ByteView message, StallAsk* ask);
Status decode(ByteView message, StallAnswer* answer);

struct StallReport {
  struct Work {
    StallName name;
    int32_t op = 0;
    double seconds = 0;            // pending time
    bool overdue = false;          // pending for longer than the shutdown time
    std::vector<int32_t> missing;  // ranks, ascending
  };
  struct Rank {
    int32_t rank = 0;
    std::string host;  // empty: no hello was received
    int64_t pid = 0;
    bool answered = false;
    StallAnswer answer;                // the rank's answer, if any
    std::vector<int32_t> hidden = {};  // silent ranks whose answers this silent rank forwards
  };
  // Ranks that wait in the same call at the same line.
  struct Waiting {
    StallName name;
    int32_t op = 0;
    std::string place;           // StallAnswer::place
    std::vector<int32_t> ranks;  // ascending
  };
  double warning_seconds = 0;
  double shutdown_seconds = 0;  // 0: no limit
  std::vector<Work> work;       // in the order of their names
  std::vector<Rank> missing;    // ranks that are missing in any entry of `work`, ascending
  // Ranks that wait in an operation of `work`, grouped by call, in the order of each group's first rank.
  std::vector<Waiting> waiting = {};
  int32_t last_common_op = 0;    // last operation of the set of all ranks
  std::string last_common = {};  // may be empty

  // Returns true if an entry is overdue, so that the job must end.
  bool fatal() const;
};

// Returns the record for the log, several lines. Tools recognise its beginning, which is the same as in the original
// Horovod.
std::string text_of(const StallReport& report);
// Returns one line, without a newline.
std::string json_of(const StallReport& report, double epoch_seconds);
// Returns the reason for the end of the job, as a sentence.
Status cause_of(const StallReport& report);

}  // namespace hvd::runtime
