// Decides which ranks are late, and in which way, from windows of training steps. In a step, the lateness of a rank is
// the longest wait of any rank minus its own wait: the last rank waits least. StragglerWatch owns this object. Pure.
//
//   judge(window)    50 steps of the same numbers on all ranks (StepAlignment)
//     constant       the median lateness of a rank exceeds that of the median rank by more than 10 % of a step (without
//                    waits) and by more than 5 scaled median absolute deviations of the other ranks. Two successive
//                    windows open an episode, which is reported once; three windows without lateness close the episode.
//                    If most ranks of a host are late and none is in time, the host is late.
//     periodic       a rank is late in every n-th step, with peaks at equal distances. Once for each rank.
//     moving         in most steps a rank is late, but no rank is late in most steps. Once for each episode.
//     everybody      steps take longer than before, and no rank is late.
//   is_suspicious()  a window shows the beginning of an episode: the owner then looks for causes, before the report.
//
// With two ranks, or two hosts, the other rank or host is the reference, and a finding is marked (`is_one_of_two`): the
// data cannot show which of the two is normal. Invariants: no finding in the first 100 steps, nor in windows whose
// median step is shorter than 20 ms, nor in a window with other ranks than the last window (the owner makes a new
// rule).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "launcher/observe/rules/step_alignment.h"

namespace hvd::launcher {

// Returns the median: the mean of the middle two for an even number of values, and 0 without values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

enum class StragglerKind : uint8_t {
  kConstant,  // these ranks are late in most steps
  kHost,      // all ranks of a host are late in most steps
  kPeriodic,  // a rank is late in every n-th step
  kMoving,    // a different rank is late in each step
  kEverybody  // all ranks are slower than before
};

struct StragglerFinding {
  StragglerKind kind = StragglerKind::kConstant;
  std::vector<int> ranks = {};  // kMoving, kEverybody: empty
  double late_seconds = 0;      // lateness per step; kEverybody: increase of the duration of a step
  double step_seconds = 0;      // duration of a step
  int late_steps = 0;           // among StepWindow::kSteps
  uint64_t period = 0;          // kPeriodic: number of steps between peaks
  // With two ranks or two hosts, the data cannot show which of them is normal.
  bool is_one_of_two = false;
};

class StragglerRule {
 public:
  // The lateness of a rank in the last window.
  struct Lateness {
    int rank = 0;
    int host = 0;
    double late_seconds = 0;  // the median over the steps
    double waited_seconds = 0;
    bool is_straggler = false;
  };

  struct Numbers;

  // Returns new findings, once for each episode.
  std::vector<StragglerFinding> judge(const StepWindow& window);
  // Returns the ranks that were late in the last window but are not stragglers yet.
  const std::set<int>& suspects() const { return suspects_; }
  // Returns whether the next window may have a finding. The owner should then look for causes.
  bool is_suspicious() const { return is_suspicious_; }
  // Indexed by rank.
  const std::vector<Lateness>& latest() const { return latest_; }

 private:
  // A condition that may last for several windows.
  struct Episode {
    int windows = 0;  // consecutive windows with the condition
    int clear = 0;    // consecutive windows without the condition
    bool is_open = false;
    // Returns whether the episode begins. `needed`: number of consecutive windows.
    bool next(bool is_there, int needed);
  };

  std::set<int> late_ranks(const Numbers& numbers) const;
  void judge_constant(const Numbers& numbers, std::vector<StragglerFinding>& findings);
  void judge_periodic(const Numbers& numbers, std::vector<StragglerFinding>& findings);
  void judge_moving(const Numbers& numbers, std::vector<StragglerFinding>& findings);
  void judge_everybody(const Numbers& numbers, std::vector<StragglerFinding>& findings);

  std::map<int, Episode> episodes_;  // key: rank
  // By rank: the steps in which only this rank was late.
  std::map<int, std::deque<uint64_t>> peaks_;
  std::set<int> reported_periodic_;
  Episode moving_, everybody_;
  std::deque<double> usual_;  // durations of earlier windows' steps, in seconds, without waits
  uint32_t phase_ = 0;        // the operation that ended most steps of these windows
  int reports_of_all_ = 0;
  uint64_t next_ = 0;  // the step after the last window
  std::set<int> suspects_;
  bool is_suspicious_ = false;
  std::vector<Lateness> latest_;
};

}  // namespace hvd::launcher
