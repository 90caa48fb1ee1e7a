// Runs agreed batches through the op plugins: the batches of a process set in order, and those of
// different sets in parallel. Batches on devices start in one order, which all ranks share. Reports each submission to the CompletionSink when its last part is
// done. The runtime core owns and calls it, on the progress thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/plugins/op_selector.h"
#include "runtime/submission/set_table.h"
#include "runtime/submission/submission.h"
#include "runtime/telemetry/instruments.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

// An item of a plan, as this rank knows it.
struct AgreedItem {
  Submission* submission = nullptr;  // null: this rank has joined
  const Request* request = nullptr;
  const std::vector<RankRows>* rows = nullptr;  // rows of all members, by ascending rank
};

// Where submissions go when they are over.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // The whole submission is on a device's stream, and waits for its end there.
  virtual void go_on(Submission* submission) = 0;
  virtual void complete(Submission* submission, Status status) = 0;
};

class BatchExecutor {
 public:
  // The batch queue of one process set on this rank.
  class BatchQueue;

  BatchExecutor(uint64_t fusion_threshold, OpSelector* ops, CompletionSink* sink,
                Instruments* instruments);
  // The framework that releases device memory made by plugins; nullptr: none.
  void set_framework(const hvd_framework* framework) { framework_ = framework; }
  // The device of this rank's tensors, which a rank that has joined uses too; nullptr: unknown.
  void set_device(const std::atomic<int32_t>* device) { device_ = device; }
  ~BatchExecutor();

  // The plugins learn of the set. The queue stays until it is closed, which needs it idle.
  Status open_queue(std::shared_ptr<const SetMembers> set, BatchQueue** queue);
  Status close_queue(BatchQueue* queue);

  // Queues a batch: the tensors of the units' dtype in their items.
  void add(BatchQueue* queue, std::span<const PlanUnit> units, std::span<const AgreedItem> items);
  // Ends a plan: its batches on devices start at the queue's next turn. Returns true when the ranks have
  // to agree on that turn; false when it has been given, or the plan has no such batch.
  bool end_plan(BatchQueue* queue);
  // The queue's next plan with batches on devices follows those that have got their turn before.
  void give_turn(BatchQueue* queue) { turns_.push_back(queue); }
  // How batches are run that are added from now on; the same on all ranks.
  void set_tuning(const hvd_tuning& tuning) { tuning_ = others_tuning_ = tuning; }
  // As set_tuning(), for the set of all ranks alone: ranks may run the plans of other sets in another order.
  void tune(const hvd_tuning& tuning) { tuning_ = tuning; }
  // The inputs of this rank for a batch as in add, a view per tensor. False: the batch cannot be
  // reduced one-shot (no plugin has reduce_wholes, or it is no allreduce of CPU memory).
  bool one_shot_inputs(BatchQueue* queue, std::span<const PlanUnit> units,
                       std::span<const AgreedItem> items, std::vector<ByteView>* tensors);
  // Reduces such a batch one-shot: `theirs` are all inputs of the other of two members. Needs the queue
  // idle.
  Status run_one_shot(BatchQueue* queue, std::span<const PlanUnit> units,
                      std::span<const AgreedItem> items, ByteView theirs);
  // Starts what can be started and advances what runs. True when anything moved; a failure is
  // one of this rank or its links, after which nothing can go on.
  Result<bool> advance();

  bool idle() const { return outstanding_ == 0; }
  // Whether nothing that runs must be polled.
  bool may_sleep() const { return outstanding_ == 0 || ops_->may_sleep(); }
  bool idle(const BatchQueue& queue) const { return outstanding(queue) == 0; }
  size_t outstanding(const BatchQueue& queue) const;
  // Those of them that are not on a device's stream.
  size_t busy(const BatchQueue& queue) const;
  // Tells the plugins that nothing that runs will be finished.
  void abort(const char* cause);

 private:
  struct Run;
  std::unique_ptr<Run> make_run();
  int32_t device_of_joined() const;
  std::unique_ptr<Run> make_run(BatchQueue* queue, std::span<const PlanUnit> units,
                                std::span<const AgreedItem> items);
  Result<bool> advance(BatchQueue* queue);
  bool can_start(const BatchQueue& queue) const;
  Status poll_plugins(bool* moved);
  void note_streams(BatchQueue* queue, bool* moved);
  void go_on(Run* run);
  Status retire(BatchQueue* queue, bool* moved);
  Status start(BatchQueue* queue, Run* run);
  Status make_outputs(const BatchQueue& queue, Run* run);
  void refuse(Run* run);
  void measure(Run* run);
  void trace_run(const Run& run);
  void finish(Run* run, const Status& status);
  static void on_done(void* argument, int status, const char* error);
  static void on_stream(void* argument, void* event);
  static void on_failure(void* argument, int status, const char* error);

  const uint64_t fusion_threshold_;
  OpSelector* const ops_;
  CompletionSink* const sink_;
  Instruments* const instruments_;
  const hvd_framework* framework_ = nullptr;
  const std::atomic<int32_t>* device_ = nullptr;
  hvd_tuning tuning_{};         // for process set 0, of all ranks
  hvd_tuning others_tuning_{};  // for other process sets
  std::vector<std::unique_ptr<BatchQueue>> queues_;
  std::deque<const BatchQueue*> turns_;  // each for the batches on devices of one plan of the queue
  std::vector<std::unique_ptr<Run>> spare_;
  size_t outstanding_ = 0;  // batches of all queues that are not complete
  Status failure_;          // of an op whose batches end with abort
};

}  // namespace hvd::runtime
