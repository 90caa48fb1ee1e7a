// Holds back the traceback with which a rank ends. Where its exception is Horovod's and names another rank that has
// failed as the cause, one sentence for all such ranks takes its place. Drops no other line, and no traceback of the
// first failure. Holds no other line than those of tracebacks, none for longer than kHeldFor, and at most kMaxHeldLines
// of a rank. A rank that goes on after a traceback that was left out has caught it: it is shown after kCaughtAfter.
// LineRouter owns it, and passes the time. Pure.
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

// The rank that a message of Horovod's names as lost or ended, or nothing.
std::optional<int> accused_by(std::string_view message);

class TracebackFolder {
 public:
  // Whole lines of the rank's standard error, each behind a tag of `tag` bytes. Returns those to show now. The first
  // one is never held if `is_begun`: a part of it was shown.
  std::string add(int rank, std::string_view lines, size_t tag, bool is_begun,
                  Clock::time_point now);
  // The rank writes no more.
  void output_ended(int rank);
  struct End {
    bool is_success = false;
    bool is_failure = false;  // of its own, and not by its agent on the launcher's order
    bool is_mute = false;     // by a signal, or with its host: the rank could not print a reason
  };
  void ended(int rank, End end);

  struct Shown {
    int rank;
    std::string lines;
  };
  // Returns the lines that are no longer held. `all`: the job has ended.
  std::vector<Shown> take(Clock::time_point now, bool all);
  // A sentence about the ranks whose tracebacks were left out, each once: after kHeldFor, or for `all`. Empty: none.
  std::string take_sentence(Clock::time_point now, bool all);
  bool is_holding(int rank) const;
  // When to take again.
  Deadline deadline() const;

 private:
  struct Line {
    std::string text;
    size_t tag;
  };
  struct Rank {
    std::vector<Line> held;  // from the first line of a traceback on
    size_t held_bytes = 0;
    Clock::time_point since;
    std::optional<End> end;
    bool is_consequence = false;  // the traceback is complete, and accuses another rank
    bool has_raised = false;      // it has written one that accuses none
    std::string left_out;         // of a traceback, until the rank has ended
    Clock::time_point left_out_at;
    bool has_written = false;
    bool is_output_ended = false;
    std::optional<int> accused;           // by the traceback that has ended the rank
    size_t fold_begin = 0, fold_end = 0;  // lines of it
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
  std::set<int> explained_;  // causes without a reason of their own, for which a peer's was shown
  std::map<int, int> root_of_;              // of folded ranks: the cause
  std::map<int, std::vector<int>> folded_;  // by cause: not yet said
  std::optional<Clock::time_point> folded_since_;
};

}  // namespace hvd::launcher
