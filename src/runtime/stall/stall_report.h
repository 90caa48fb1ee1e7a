// Formats the report of a stall as lines of the log and as a line of JSON. StallInspector calls these functions.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/stall/stall_message.h"

namespace hvd::runtime {

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
    std::vector<int32_t> hidden = {};  // silent ranks behind a rank without an answer
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

// Returns the record for the log, several lines. Tools recognise its beginning, which equals the original Horovod's.
std::string text_of(const StallReport& report);
// Returns one line, without a newline.
std::string json_of(const StallReport& report, double epoch_seconds);
// Returns the reason for the end of the job, as a sentence.
Status cause_of(const StallReport& report);

}  // namespace hvd::runtime
