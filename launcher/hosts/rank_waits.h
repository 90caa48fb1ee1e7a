// The time that a rank has waited for others, and others for it: a part of the metrics of a job.
#pragma once

namespace hvd::launcher {

struct RankWaits {
  int rank = 0;
  double waited_seconds = 0;  // in each step the longest wait of an operation
  double late_seconds = 0;    // in each step the longest wait of any rank, less its own
  bool is_straggler = false;
};

}  // namespace hvd::launcher
