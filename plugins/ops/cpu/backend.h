// The built-in backend of host memory: runs the batches of one process set one after another, and
// those of different sets concurrently. Lives on the thread that makes progress.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "collectives/algorithms/collectives.h"
#include "collectives/mesh/shared_mesh.h"
#include "ops/common/batch_queue.h"
#include "ops/common/op_plugin.h"
#include "ops/common/process_set.h"

namespace hvd::ops {

class CpuBackend {
 public:
  explicit CpuBackend(collectives::SharedMesh mesh);
  ~CpuBackend();
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  static int32_t supports(const hvd_batch& batch) { return collectives::can_run(batch) ? 100 : 0; }
  // Starts the batch, or queues it behind the others of its set.
  int run(const hvd_batch& batch, Done done, void* argument);
  // True when anything moved.
  bool poll();
  // Whether poll would find nothing to do.
  bool is_idle();

  int new_set(int32_t id, std::vector<int32_t> members);
  // Of two members of a set: hvd_op_v1.reduce_wholes.
  int reduce_wholes(const hvd_batch& batch, const void* const* inputs);
  int drop_set(int32_t id) { return sets_.drop(id); }
  void abort(const Status& cause) { mesh_->fail(cause); }
  // By the links that carry it: memory inside a host, also TCP where it goes between hosts.
  const char* activity(const hvd_batch& batch);

 private:
  // A set's memory for a coroutine, its group, and what waits; the first entry is what runs.
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
