// Selects the op plugin whose supports() returns the highest value for a batch. The choice is equal on
// every rank, because every rank has the same plugins and the same batch. Owns the plugins. Runtime
// owns the selector; the batch executor calls it, on the progress thread.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/operations/op_traits.h"
#include "base/plugin_record.h"
#include "horovod/plugin_op.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

class OpSelector {
 public:
  // `ops`: the highest priority first.
  explicit OpSelector(std::vector<OpenedPlugin> ops) : ops_(std::move(ops)) {}

  const std::vector<OpenedPlugin>& all() const { return ops_; }
  void close() { ops_.clear(); }
  // new_set() notifies every plugin of a new process set with this rank, drop_set() of its removal.
  Status new_set(int32_t id, const std::vector<int32_t>& members) {
    for (const OpenedPlugin& op : ops_) {
      if (op.vtable<hvd_op_v1>().new_set == nullptr) continue;
      const int code = op.vtable<hvd_op_v1>().new_set(op.context(), id, members.data(),
                                                      static_cast<int32_t>(members.size()));
      if (code != HVD_OK) return refusal(op, code, "refuses", id);
    }
    return {};
  }
  Status drop_set(int32_t id) {
    for (const OpenedPlugin& op : ops_) {
      if (op.vtable<hvd_op_v1>().drop_set == nullptr) continue;
      const int code = op.vtable<hvd_op_v1>().drop_set(op.context(), id);
      if (code != HVD_OK) return refusal(op, code, "does not give up", id);
    }
    return {};
  }
  // Returns true if all plugins let the progress thread sleep.
  bool may_sleep() const {
    return std::all_of(ops_.begin(), ops_.end(), [](const OpenedPlugin& op) {
      auto* const before_sleep = field_of(op.vtable<hvd_op_v1>(), &hvd_op_v1::before_sleep);
      return before_sleep == nullptr || before_sleep(op.context()) == 1;
    });
  }
  // Returns nullptr if no plugin can run the batch.
  const OpenedPlugin* select(const hvd_batch& batch) const {
    const OpenedPlugin* best = nullptr;
    int32_t best_score = 0;
    for (const OpenedPlugin& op : ops_) {
      const int32_t score = op.vtable<hvd_op_v1>().supports(op.context(), &batch);
      if (score > best_score) {
        best = &op;
        best_score = score;
      }
    }
    return best;
  }

 private:
  static Status refusal(const OpenedPlugin& op, int code, const char* what, int32_t id) {
    return Status(static_cast<Code>(code),
                  cat("operation plugin ", op.record().name, " ", what, " process set ", id));
  }
  std::vector<OpenedPlugin> ops_;
};

// The table of the operations that the job's plugins run on device memory. hvd_init makes the table once; immutable.
// hvd_runs_on_device reads the table, on any thread, so that a framework can choose before it submits.
class DeviceSupport {
 public:
  DeviceSupport() = default;  // supports no operation
  // Queries the plugins for a set of `size` ranks. Call it before other threads use the plugins.
  static DeviceSupport ask(const OpSelector& ops, int32_t size);

  // `reduce_op`: the user's value. A factor of 0 means 1.
  bool has(int32_t op, int32_t dtype, int32_t reduce_op, double prescale, double postscale) const;

 private:
  static constexpr size_t kDtypes = kDtypeCount, kReductions = 6;
  // Returns the index of a reduction, with or without factors, in the table.
  static size_t place(int32_t op, int32_t dtype, int32_t reduce_op, bool factors);
  std::bitset<kOpCount * kDtypes * kReductions * 2> runs_;
};

}  // namespace hvd::runtime
