// A batch of an op plugin's conformance suite with its memory, a set's ranks, and the check of a result.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "conformance/elements.h"
#include "conformance/plugin_world.h"
#include "fewer.h"

namespace hvd::test {

// The memory of the tensors: host memory, or device memory that the host can read and write.
struct OpMemory {
  int32_t device = HVD_CPU;
  std::function<void*(size_t)> take = [](size_t size) { return std::malloc(size + 1); };
  std::function<void(void*)> give_back = [](void* memory) { std::free(memory); };
};
inline OpMemory& op_memory() {
  static OpMemory memory;
  return memory;
}

// One rank's batch with its memory.
class OpCase {
 public:
  OpCase(int op, hvd_dtype dtype, int32_t set = 0) : dtype_(dtype), size_(size_of(dtype)) {
    batch.struct_size = sizeof batch;
    batch.op = op;
    batch.reduce_op = HVD_SUM;
    batch.dtype = dtype;
    batch.device = op_memory().device + own_device();
    batch.process_set = set;
    batch.prescale = batch.postscale = 1;
  }
  OpCase(const OpCase&) = delete;

  // Adds a tensor of `count` elements value(i), in rows of `row`, and space for the result.
  template <typename Value>
  hvd_batch_tensor& add(int64_t count, int64_t row, int64_t outcome, Value&& value) {
    std::byte* input = take(count);
    for (int64_t i = 0; i < count; ++i) {
      store(dtype_, input + static_cast<size_t>(i) * size_, value(static_cast<size_t>(i)));
    }
    std::byte* output = take(outcome);
    counts_.push_back(static_cast<size_t>(outcome));
    tensors_.push_back({input, output, count, row, nullptr, nullptr});
    return tensors_.back();
  }
  // Every second batch keeps its tensors, unless the case decides.
  const hvd_batch& ready(uint64_t sequence) {
    batch.sequence = sequence;
    batch.keeps_tensors = keeps_tensors.value_or(sequence % 2 == 1) ? 1 : 0;
    batch.tensors = tensors_.data();
    batch.tensor_count = static_cast<uint32_t>(tensors_.size());
    return batch;
  }
  std::vector<double> outcome(size_t tensor) const {
    std::vector<double> values(counts_[tensor]);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = load(dtype_, static_cast<const std::byte*>(tensors_[tensor].output) + i * size_);
    }
    return values;
  }
  void in_place() {
    for (hvd_batch_tensor& tensor : tensors_) tensor.output = const_cast<void*>(tensor.input);
  }
  // Removes the tensors, as on a rank that has joined.
  void joined() {
    for (hvd_batch_tensor& tensor : tensors_) tensor.input = tensor.output = nullptr;
  }
  // Overwrites the tensors' memory, like a user who reuses it.
  void overwrite() {
    for (const Piece& piece : memory_) std::memset(piece.bytes.get(), kOverwritten, piece.size);
  }
  bool is_still_overwritten() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const Piece& piece) {
      const auto* bytes = static_cast<const std::byte*>(piece.bytes.get());
      return std::all_of(bytes, bytes + piece.size,
                         [](std::byte one) { return one == std::byte{kOverwritten}; });
    });
  }
  // Stores rows that tensors point to, at fixed addresses.
  const int64_t* keep(std::vector<int64_t> rows) {
    return rows_.emplace_back(std::make_unique<std::vector<int64_t>>(std::move(rows)))->data();
  }

  hvd_batch batch{};
  std::optional<bool> keeps_tensors;

 private:
  hvd_dtype dtype_;
  size_t size_;
  std::byte* take(int64_t count) {
    const auto bytes = static_cast<size_t>(count) * size_;
    memory_.push_back({{op_memory().take(bytes), op_memory().give_back}, bytes});
    std::memset(memory_.back().bytes.get(), 0, bytes);
    return static_cast<std::byte*>(memory_.back().bytes.get());
  }
  static constexpr unsigned char kOverwritten = 0x5a;
  struct Piece {
    std::unique_ptr<void, std::function<void(void*)>> bytes;
    size_t size;
  };
  std::vector<Piece> memory_;
  std::vector<size_t> counts_;
  std::vector<hvd_batch_tensor> tensors_;
  std::vector<std::unique_ptr<std::vector<int64_t>>> rows_;
};

// The ranks of a set and its sequence numbers; runs a case on this rank.
struct OpSet {
  PluginRank& rank;
  int32_t id;
  std::vector<int32_t> members;
  uint64_t next = 1;

  OpSet(PluginRank& of, int32_t number, std::vector<int32_t> ranks)
      : rank(of), id(number), members(std::move(ranks)) {
    CHECK(rank.op().new_set(rank.op_context(), id, members.data(),
                            static_cast<int32_t>(members.size())) == HVD_OK);
  }
  static OpSet everyone(PluginRank& rank) {
    std::vector<int32_t> ranks(static_cast<size_t>(rank.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return {rank, 0, std::move(ranks)};
  }
  int index() const {
    return static_cast<int>(std::find(members.begin(), members.end(), rank.rank()) -
                            members.begin());
  }
  int size() const { return static_cast<int>(members.size()); }
  bool claims(OpCase& work) { return rank.op().supports(rank.op_context(), &work.ready(0)) > 0; }
  bool run(OpCase& work) { return rank.run(work.ready(next++)); }
};

using Right = std::function<double(size_t)>;
inline void check_outcome(const OpCase& work, size_t tensor, const Right& right) {
  const std::vector<double> values = work.outcome(tensor);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == right(i)) continue;
    FAIL_CHECK("operation ", work.batch.op, " ", name_of(static_cast<hvd_dtype>(work.batch.dtype)),
               " reduction ", work.batch.reduce_op, " tensor ", tensor, " element ", i, ": ",
               values[i], " and not ", right(i));
    return;
  }
}

// Rows [first, first + count) of a reducescatter, as horovod.h splits them.
inline std::pair<int64_t, int64_t> rows_kept(int64_t rows, int index, int size) {
  const int64_t longer = rows % size;
  return {index * (rows / size) + std::min<int64_t>(index, longer),
          rows / size + (index < longer ? 1 : 0)};
}

inline double reduced(hvd_dtype dtype, int op, int size, size_t i) {
  double right = element(dtype, op, 0, i);
  for (int r = 1; r < size; ++r) right = combine(dtype, op, right, element(dtype, op, r, i));
  return right;
}

constexpr int kReductions[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};

}  // namespace hvd::test
