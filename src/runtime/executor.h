// Runs agreed batches, strictly in their order, through the op plugins, and hands each submission
// back when its last part is done. Belongs to the thread that makes progress.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/instruments.h"
#include "runtime/message.h"
#include "runtime/op_selector.h"
#include "runtime/submission.h"

namespace hvd::runtime {

// An item of a plan, as this rank knows it.
struct AgreedItem {
  Submission* submission = nullptr;
  const std::vector<RankRows>* rows = nullptr;  // of all ranks, ascending
};

// Where submissions go when they are over.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void complete(Submission* submission, Status status) = 0;
};

class Executor {
 public:
  Executor(int32_t rank, int32_t size, uint64_t fusion_threshold, OpSelector* ops,
           CompletionSink* sink, Instruments* instruments)
      : rank_(rank), size_(size), fusion_threshold_(fusion_threshold), ops_(ops), sink_(sink),
        instruments_(instruments) {}

  // Queues a batch: the tensors of the units' dtype in their items.
  void add(uint64_t sequence, std::span<const PlanUnit> units, std::span<const AgreedItem> items);
  // How batches are run that are added from now on; the same on all ranks.
  void tune(const hvd_tuning& tuning) { tuning_ = tuning; }
  // Starts what can be started and advances what runs. True when anything moved; a failure is
  // one of this rank or its links, after which nothing can go on.
  Result<bool> advance();

  bool idle() const { return queue_.empty() && running_.empty(); }
  size_t outstanding() const { return queue_.size() + running_.size(); }
  // Tells the plugins that nothing that runs will be finished.
  void abort(const char* cause);

 private:
  struct Run {
    Executor* executor = nullptr;
    hvd_batch batch{};
    hvd_tuning tuning{};  // what batch.tuning points to, where it points
    std::vector<hvd_batch_tensor> tensors;
    std::vector<uint32_t> member;            // index of each tensor in its submission
    std::vector<Submission*> owner;          // of each tensor
    std::vector<Submission*> submissions;    // each once
    std::vector<int64_t> rows;               // what rank_rows and from_rows point to
    bool done = false;
    uint32_t traced = 0;                     // its number in the timeline
    Status status;
  };

  std::unique_ptr<Run> make_run();
  void add_tensors(Run* run, Submission* submission, int32_t dtype,
                   const std::vector<RankRows>* rows);
  Status start(Run* run);
  Status make_outputs(Run* run);
  void measure(Run* run);
  void trace_run(const OpenedPlugin& op, const Run& run);
  void finish(Run* run, const Status& status);
  bool has_work(const Run& run) const;
  static void on_done(void* argument, int status, const char* error);

  const int32_t rank_;
  const int32_t size_;
  const uint64_t fusion_threshold_;
  OpSelector* const ops_;
  CompletionSink* const sink_;
  Instruments* const instruments_;
  std::optional<hvd_tuning> tuning_;
  std::deque<std::unique_ptr<Run>> queue_;
  std::deque<std::unique_ptr<Run>> running_;
  std::vector<std::unique_ptr<Run>> spare_;
};

}  // namespace hvd::runtime
