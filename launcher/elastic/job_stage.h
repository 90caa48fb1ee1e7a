// The stages of an elastic job in one launch. ElasticCore holds the present one.
//
//   kUnknown ──┬─> kAssumed ──┬─> kAsking ──> kElastic
//              └──────────────┘
//   kAssumed, kAsking, kElastic ──> kFinishing
//   kAssumed, kAsking, kElastic, kFinishing ──> kOver
#pragma once

namespace hvd::launcher {

enum class JobStage {
  kUnknown,    // the launch has not begun
  kAssumed,    // no process has asked for a place: the ranks are those with which the launch began
  kAsking,     // processes ask for their places; no rank has entered hvd.elastic.run
  kElastic,    // a rank has entered hvd.elastic.run
  kFinishing,  // a rank has ended with exit code 0: no further generation begins
  kOver,       // the job ends, or starts again
};

constexpr bool may_follow(JobStage stage, JobStage next) {
  switch (stage) {
    case JobStage::kUnknown:
      return next == JobStage::kAssumed || next == JobStage::kAsking;
    case JobStage::kAssumed:
      return next == JobStage::kAsking || next == JobStage::kFinishing || next == JobStage::kOver;
    case JobStage::kAsking:
      return next == JobStage::kElastic || next == JobStage::kFinishing || next == JobStage::kOver;
    case JobStage::kElastic:
      return next == JobStage::kFinishing || next == JobStage::kOver;
    case JobStage::kFinishing:
      return next == JobStage::kOver;
    case JobStage::kOver:
      return false;
  }
  return false;
}

}  // namespace hvd::launcher
