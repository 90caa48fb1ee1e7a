// The state of one batch, and of the batch queue of one process set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "horovod/plugin_op.h"
#include "runtime/execution/batch_executor.h"

namespace hvd::runtime {

// Returns the type in which an average is summed: int32 for 8-bit integers, int64 for 16 and 32 bits, other types
// unchanged. Sums of 64-bit integers wrap around.
int32_t sum_type_of_average(int32_t dtype);

// Computes an average of integers in a wider type, which can represent the number of ranks times
// the largest value. widen() copies the inputs to this type, narrow() copies the results back. The
// copies are acceptable, since averages of integers are rare. Owns the copies until the batch ends.
// Each BatchExecutor::Run and each GroupRunner::Group has a WideAverage; the progress thread calls it.
class WideAverage {
 public:
  // Replaces the tensors of type `dtype` by copies of type `wide`. `kept`: the number of elements of
  // each tensor's result.
  Status widen(int32_t dtype, int32_t wide, std::span<const int64_t> kept,
               std::span<hvd_batch_tensor> tensors);
  // Stores the results in the outputs that the tensors had before widen(). An out-of-range result
  // becomes the nearest value. Does nothing without widen().
  void narrow();
  void clear() {
    results_.clear();
    memory_.reset();
  }

 private:
  struct WideResult {
    const std::byte* wide;
    void* output;
    int64_t count;
  };
  int32_t dtype_ = HVD_UINT8;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<WideResult> results_;
};

// A batch, and all memory that it points to.
struct BatchExecutor::Run {
  hvd_batch batch{};
  hvd_tuning tuning{};               // batch.tuning points here or is null
  const OpenedPlugin* op = nullptr;  // the plugin that runs the batch
  int32_t dtype = HVD_FLOAT32;       // type of the users' tensors; batch.dtype: type of the sum
  WideAverage wide;
  std::vector<hvd_batch_tensor> tensors;
  std::vector<uint32_t> member;          // index of each tensor in its submission
  std::vector<Submission*> owner;        // each tensor's submission; null: this rank has joined
  std::vector<Submission*> submissions;  // the different submissions in `owner`
  std::vector<int64_t> rows;             // rank_rows and from_rows point into this vector
  // For device tensors, one entry per tensor: batch.ready_events and batch.made_outputs point to these vectors.
  std::vector<void*> ready, made;
  bool ends_turn = false;  // this is the last device batch of its plan
  bool done = false;
  void* event = nullptr;      // event of the stream that has the batch; nullptr: no stream
  bool is_on_stream = false;  // go_on() has marked its submissions; BatchQueue::on_stream counts it
  uint32_t traced = 0;        // its number in the timeline
  uint64_t step = 0;          // the value of StepLog::ended when the ranks agreed on it
  // Begin and end of the execution on its device; equal if unknown.
  Clock::time_point began{}, ended{};
  Status status;
  Status* failure = nullptr;                 // BatchExecutor::failure_
  const hvd_framework* framework = nullptr;  // releases `made`

  Run() = default;
  Run(const Run&) = delete;
  // Releases the outputs of a failed batch that the op made.
  ~Run();
  void clear();
  // Fills the batch with the tensors that the units select from the items. The tuning must be set before; the caller
  // sets the op afterwards.
  void fill(const SetMembers& set, std::span<const PlanUnit> units,
            std::span<const AgreedItem> items);
  bool has_work(size_t members) const;
  bool reduces_one_shot() const;
  // Returns whether the runtime owns the batch's outputs. The runtime allocates them in host memory, the op on a
  // device.
  bool has_own_outputs() const;
  Status make_outputs(const SetMembers& set);
  bool is_wide() const { return batch.dtype != dtype; }
  // Copies the tensors to the type of the sum, before the op runs. Afterwards wide.narrow() copies the results.
  Status widen(const SetMembers& set);
  // Takes over outputs that the op made on a device; the framework releases them.
  void take_made();
  // Keeps the runtime's outputs until the process ends, because a library may use them. Users must keep their own
  // tensors.
  void keep_tensors();

 private:
  void describe(const SetMembers& set, const Request& request, int32_t of);
  void add(const SetMembers& set, const AgreedItem& item, int32_t of);
  void add_rows(const SetMembers& set, const AgreedItem& item, size_t tensor, hvd_batch_tensor* to);
  void add_devices();
  Status make_output(const SetMembers& set, size_t index);
};

class BatchExecutor::BatchQueue {
 public:
  explicit BatchQueue(std::shared_ptr<const SetMembers> of) : set(std::move(of)) {}

  // Returns whether the ranks must agree on the turns of the set's device batches. Plans of the set of all
  // ranks already have the same order everywhere, and a set of one rank does not wait for other ranks.
  bool waits_for_turns() const { return set->id != 0 && set->ranks.size() > 1; }

  const std::shared_ptr<const SetMembers> set;
  uint64_t next_sequence = 0;
  Run* last_on_device = nullptr;  // last device batch of the plan that is being added
  std::deque<std::unique_ptr<Run>> waiting;
  std::deque<std::unique_ptr<Run>> running;
  size_t on_stream = 0;  // number of batches on a device's stream
};

}  // namespace hvd::runtime
