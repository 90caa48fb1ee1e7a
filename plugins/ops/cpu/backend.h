// The built-in backend for host memory, over src/collectives. Runs the batches of a process set one
// after another, and the batches of different sets concurrently. Owns the mesh of links and the
// queues of batches. The runtime calls the backend through OpRecord, on the progress thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "collectives/algorithms/collectives.h"
#include "collectives/mesh/mesh.h"
#include "ops/common/batch_queue.h"
#include "ops/common/op_plugin.h"

namespace hvd::ops {

class CpuBackend {
 public:
  explicit CpuBackend(collectives::SharedMesh mesh);
  ~CpuBackend();
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  static int32_t supports(const hvd_batch& batch) { return collectives::can_run(batch) ? 100 : 0; }
  // Starts the batch, or queues it after the other batches of its set.
  int run(const hvd_batch& batch, Done done, void* argument);
  // Advances all batches. Returns true if any batch made progress.
  bool poll();
  // Returns whether poll() would have nothing to do.
  bool is_idle();

  int new_set(int32_t id, std::vector<int32_t> members);
  // Implements hvd_op_v1.reduce_wholes.
  int reduce_wholes(const hvd_batch& batch, const void* const* inputs);
  int drop_set(int32_t id) { return sets_.drop(id); }
  void abort(const Status& cause) { mesh_->fail(cause); }
  // Returns the timeline's name of a batch: "TCP_..." for a set on several hosts, else "SHM_...".
  const char* activity(const hvd_batch& batch);

 private:
  // A process set: its group, its queue and the state of its coroutine. The first entry of the queue runs.
  struct Set {
    collectives::Flow flow;
    std::unique_ptr<collectives::Group> group;
    std::deque<QueueEntry> entries;
  };

  bool advance();
  void start_next(Set& set);
  void check_hopeless(Set& set);
  void fail_all();

  collectives::SharedMesh mesh_;
  BatchQueue<Set> sets_;
  Incarnations incarnations_;
};

}  // namespace hvd::ops
