// Holds back the traceback with which a rank ends. If its exception is Horovod's and names another failed rank as the
// cause, one sentence for all such ranks replaces the traceback. Drops no other line, and no traceback of the first
// failure. Holds only lines of tracebacks, for at most kHeldFor, and at most kMaxHeldLines per rank. A rank that
// continues has caught the exception: its omitted traceback is shown after kCaughtAfter. LineRouter owns this object,
// and passes the time. Pure.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

constexpr std::chrono::seconds kHeldFor{2};
constexpr std::chrono::seconds kCaughtAfter{10};
constexpr size_t kMaxHeldLines = 200;
constexpr size_t kMaxHeldBytes = 64 << 10;

// Returns the rank that a Horovod message names as lost or ended; may be empty.
std::optional<int> accused_by(std::string_view message);

class TracebackFolder {
 public:
  // Adds complete lines of the rank's standard error, each with a tag of `tag` bytes. Returns the
  // lines to show now. If `is_begun`, the first line was shown in part and is never held.
  std::string add(int rank, std::string_view lines, size_t tag, bool is_begun,
                  Clock::time_point now);
  // Call when the rank will write nothing further.
  void output_ended(int rank);
  struct End {
    bool is_success = false;
    bool is_failure = false;  // the rank failed by itself, and not on the launcher's order
    // The rank was ended by a signal, or with its host, so it printed no reason.
    bool is_mute = false;
  };
  void ended(int rank, End end);

  struct Shown {
    int rank;
    std::string lines;
  };
  // Returns the lines that need not be held longer. `all`: the job has ended.
  std::vector<Shown> take(Clock::time_point now, bool all);
  // Returns a sentence about the ranks with omitted tracebacks that no sentence has named yet: after kHeldFor, or with
  // `all`. May be empty.
  std::string take_sentence(Clock::time_point now, bool all);
  bool is_holding(int rank) const;
  // Returns the next time at which to call take().
  Deadline deadline() const;

 private:
  struct Line {
    std::string text;
    size_t tag;
  };
  struct Rank {
    std::vector<Line> held;  // the first line of a traceback, and the lines after it
    size_t held_bytes = 0;
    Clock::time_point since;
    std::optional<End> end;
    bool is_consequence = false;  // the traceback is complete, and accuses another rank
    bool has_raised = false;      // the rank has written a traceback that accuses no rank
    std::string left_out;         // lines of a traceback, until the rank has ended
    Clock::time_point left_out_at;
    bool has_written = false;
    bool is_output_ended = false;
    std::optional<int> accused;           // the rank that the final traceback accuses
    size_t fold_begin = 0, fold_end = 0;  // first line of that traceback, and the line after it
    bool is_judged = false;               // `accused` is known
  };
  enum class Verdict { kWait, kShow, kFold };

  std::string take_line(int number, Rank& rank, std::string_view line, size_t tag,
                        Clock::time_point now);
  static bool may_belong(const Rank& rank, std::string_view text);
  bool is_complete(int number, Rank& rank);
  static bool raises(const Rank& rank);
  void judge(int number, Rank& rank);
  Verdict verdict_on(int number, bool may_wait);
  std::optional<Verdict> verdict_by(int number, int cause, bool may_wait);
  Verdict verdict_about(int number, int cause, bool may_wait);
  void take_caught(Clock::time_point now, bool all, std::vector<Shown>& shown);
  std::string settle(int number, Rank& rank, Verdict verdict, Clock::time_point now);
  static std::string release(Rank& rank, const std::vector<bool>& is_shown);

  std::map<int, Rank> ranks_;
  // Causes that printed no reason, for which another rank's traceback was shown.
  std::set<int> explained_;
  std::map<int, int> root_of_;  // key: folded rank; value: the cause
  // By cause: the ranks that no sentence has named yet.
  std::map<int, std::vector<int>> folded_;
  std::optional<Clock::time_point> folded_since_;
};

}  // namespace hvd::launcher
