// Runs agreed batches through the op plugins: batches of one process set in order, batches of different sets in
// parallel. Batches on devices start in the same order on all ranks. Reports each submission to the
// CompletionSink when its last part is done. The runtime core owns and calls BatchExecutor, on the progress thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/plugins/op_selector.h"
#include "runtime/submission/set_table.h"
#include "runtime/submission/submission.h"
#include "runtime/telemetry/trace_recorder.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

// An item of a plan, with this rank's submission.
struct AgreedItem {
  Submission* submission = nullptr;  // null: this rank has joined
  const Request* request = nullptr;
  const std::vector<RankRows>* rows = nullptr;  // rows of all members, by ascending rank
};

// Receives completed submissions.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // Takes a submission of which all parts are on a device's stream.
  virtual void go_on(Submission* submission) = 0;
  virtual void complete(Submission* submission, Status status) = 0;
};

class BatchExecutor {
 public:
  // The batch queue of one process set on this rank.
  class BatchQueue;

  BatchExecutor(uint64_t fusion_threshold, OpSelector* ops, CompletionSink* sink,
                Instruments* instruments);
  // Sets the framework that releases device memory allocated by plugins; may be nullptr.
  void set_framework(const hvd_framework* framework) { framework_ = framework; }
  // Sets the device on which this rank takes part in device batches after it has joined (hvd.join()): the device of its
  // own tensors. nullptr: unknown.
  void set_device(const std::atomic<int32_t>* device) { device_ = device; }
  ~BatchExecutor();

  // Announces the set to the plugins. close_queue() destroys the queue, which must be idle.
  Status open_queue(std::shared_ptr<const SetMembers> set, BatchQueue** queue);
  Status close_queue(BatchQueue* queue);

  // Queues a batch of the tensors that the units select from the items.
  void add(BatchQueue* queue, std::span<const PlanUnit> units, std::span<const AgreedItem> items);
  // Ends a plan, whose device batches start at the queue's next turn. Returns true if the ranks must
  // agree on this turn; false if the turn is already given, or if the plan has no device batch.
  bool end_plan(BatchQueue* queue);
  // Gives the next turn to the device batches of the queue's next plan.
  void give_turn(BatchQueue* queue) { turns_.push_back(queue); }
  // Sets the tuning of batches that are added from now on; equal on all ranks.
  void set_tuning(const hvd_tuning& tuning) { tuning_ = others_tuning_ = tuning; }
  // Like set_tuning(), but only for the set of all ranks: in other sets, the ranks could make the change at different
  // plans.
  void tune(const hvd_tuning& tuning) { tuning_ = tuning; }
  // Adds the inputs of this rank for a batch as in add(), one view per tensor. Returns false if the batch cannot be
  // reduced one-shot (its plugin lacks reduce_wholes, it is widened, or it is not an allreduce of CPU memory).
  bool one_shot_inputs(BatchQueue* queue, std::span<const PlanUnit> units,
                       std::span<const AgreedItem> items, std::vector<ByteView>* tensors);
  // Reduces a batch for which one_shot_inputs() has returned true. `theirs`: the complete input of the other member.
  // The queue must be idle.
  Status run_one_shot(BatchQueue* queue, std::span<const PlanUnit> units,
                      std::span<const AgreedItem> items, ByteView theirs);
  // Starts and advances batches. Returns true if any batch made progress. After an error, no batch can continue.
  Result<bool> advance();

  bool idle() const { return outstanding_ == 0; }
  // Returns whether the thread may sleep without polling a running batch.
  bool may_sleep() const { return outstanding_ == 0 || ops_->may_sleep(); }
  bool idle(const BatchQueue& queue) const { return outstanding(queue) == 0; }
  size_t outstanding(const BatchQueue& queue) const;
  // Returns the number of batches that are not on a device's stream.
  size_t busy(const BatchQueue& queue) const;
  // Returns the time at which the device ended the last batch of any set; the epoch if it has ended none.
  Clock::time_point device_ended() const { return device_ended_; }
  // Notifies the plugins that running batches will not finish.
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
  void note_times(const Run& run);
  void finish(Run* run, const Status& status);
  static void on_done(void* argument, int status, const char* error);
  static void on_stream(void* argument, void* event);
  static void on_failure(void* argument, int status, const char* error);
  static void on_ran(void* argument, int64_t began, int64_t ended);

  const uint64_t fusion_threshold_;
  OpSelector* const ops_;
  CompletionSink* const sink_;
  Instruments* const instruments_;
  const hvd_framework* framework_ = nullptr;
  const std::atomic<int32_t>* device_ = nullptr;
  hvd_tuning tuning_{};         // for process set 0, of all ranks
  hvd_tuning others_tuning_{};  // for other process sets
  std::vector<std::unique_ptr<BatchQueue>> queues_;
  std::deque<const BatchQueue*> turns_;  // the queues of the given turns, one entry for each plan
  std::vector<std::unique_ptr<Run>> spare_;
  size_t outstanding_ = 0;  // batches of all queues that are not complete
  Clock::time_point device_ended_{};
  Status failure_;  // reported by an op plugin for a batch on a device
};

}  // namespace hvd::runtime
