// The stages of an elastic job in one launch. ElasticCore holds the current stage.
//
//   kUnknown ──┬─> kAssumed ──┬─> kAsking ──> kElastic
//              └──────────────┘
//   kAssumed, kAsking, kElastic ──> kFinishing
//   kAssumed, kAsking, kElastic, kFinishing ──> kOver
#pragma once

#include "launcher/protocol/moves.h"

namespace hvd::launcher {

enum class JobStage {
  kUnknown,    // the launch has not begun
  kAssumed,    // no process has requested a place: the ranks are those with which the launch began
  kAsking,     // processes request their places; no rank has entered hvd.elastic.run
  kElastic,    // a rank has entered hvd.elastic.run
  kFinishing,  // a rank has ended with exit code 0: no further generation begins
  kOver,       // the job ends, or starts again
};

inline bool may_follow(JobStage stage, JobStage next) {
  using enum JobStage;
  static constexpr Move<JobStage> kMoves[] = {
      {{kUnknown}, kAssumed},
      {{kUnknown, kAssumed}, kAsking},
      {{kAsking}, kElastic},
      {{kAssumed, kAsking, kElastic}, kFinishing},
      {{kAssumed, kAsking, kElastic, kFinishing}, kOver},
  };
  return is_legal(kMoves, stage, next);
}

}  // namespace hvd::launcher
