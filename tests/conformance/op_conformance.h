// The tests that every op plugin must pass. They call it through the plugin ABI only, and compare its
// results with float64 arithmetic. They skip operations that the plugin does not support. A test file
// instantiates them with HVD_OP_CONFORMANCE("name", links), where links is a PluginLinks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>

#include "base/dtype.h"
#include "base/text.h"
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
    batch.device = op_memory().device;
    batch.process_set = set;
    batch.prescale = batch.postscale = 1;
  }
  OpCase(const OpCase&) = delete;

  // A tensor of `count` elements value(i), in rows of `row`, and room for an outcome.
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
  // As on a rank that has joined: it has no tensors.
  void joined() {
    for (hvd_batch_tensor& tensor : tensors_) tensor.input = tensor.output = nullptr;
  }
  // Gives the memory of the tensors another content, as a user who needs it for something else.
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
  // Rows that tensors point to; they stay where they are.
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

// The ranks of a set, its own sequence numbers, and how to run a case there.
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

inline void check_allreduces(OpSet& set, hvd_dtype dtype) {
  for (const int op : kReductions) {
    for (const auto& counts :
         std::vector<std::vector<int64_t>>{{1}, {5, 0, 1000, 3}, {op == HVD_SUM ? 70'001 : 333}}) {
      OpCase work(HVD_ALLREDUCE, dtype, set.id);
      work.batch.reduce_op = op;
      if (!set.claims(work)) continue;
      for (const int64_t count : counts) {
        work.add(count, 1, count, [&](size_t i) { return element(dtype, op, set.index(), i); });
      }
      if (counts.size() == 1) work.in_place();
      CHECK(set.run(work));
      for (size_t t = 0; t < counts.size(); ++t) {
        check_outcome(work, t, [&](size_t i) { return reduced(dtype, op, set.size(), i); });
      }
    }
  }
}

inline void check_reducescatters(OpSet& set, hvd_dtype dtype) {
  for (const int op : kReductions) {
    for (const auto& rows :
         std::vector<std::vector<int64_t>>{{1}, {7, 0, 100}, {op == HVD_SUM ? 20'001 : 33}}) {
      OpCase work(HVD_REDUCESCATTER, dtype, set.id);
      work.batch.reduce_op = op;
      if (!set.claims(work)) continue;
      for (const int64_t count : rows) {
        work.add(count * 3, 3, rows_kept(count, set.index(), set.size()).second * 3,
                 [&](size_t i) { return element(dtype, op, set.index(), i); });
      }
      CHECK(set.run(work));
      for (size_t t = 0; t < rows.size(); ++t) {
        const auto first =
            static_cast<size_t>(rows_kept(rows[t], set.index(), set.size()).first * 3);
        check_outcome(work, t, [&](size_t i) { return reduced(dtype, op, set.size(), first + i); });
      }
    }
  }
}

// Rank r brings r % 3 times `scale` rows of 2, so that some bring none, and a tensor of r + 1 rows.
inline void check_allgathers(OpSet& set, hvd_dtype dtype) {
  const auto value = [&](size_t rank, size_t i) {
    return element(dtype, HVD_SUM, static_cast<int>(rank), i);
  };
  const auto size = static_cast<size_t>(set.size());
  for (const int64_t scale : {1, 40, 9000}) {
    OpCase work(HVD_ALLGATHER, dtype, set.id);
    std::vector<std::vector<int64_t>> rows(2);
    for (size_t r = 0; r < size; ++r) {
      rows[0].push_back(scale * static_cast<int64_t>(r % 3));
      rows[1].push_back(static_cast<int64_t>(r) + 1);
    }
    for (const auto& each : rows) {
      hvd_batch_tensor& tensor =
          work.add(each[static_cast<size_t>(set.index())] * 2, 2,
                   std::accumulate(each.begin(), each.end(), int64_t{0}) * 2,
                   [&](size_t i) { return value(static_cast<size_t>(set.index()), i); });
      tensor.rank_rows = work.keep(each);
    }
    if (!set.claims(work)) return;
    CHECK(set.run(work));
    for (size_t t = 0; t < rows.size(); ++t) {
      check_outcome(work, t, [&](size_t i) {
        size_t rank = 0;
        for (; i >= static_cast<size_t>(rows[t][rank] * 2); ++rank) {
          i -= static_cast<size_t>(rows[t][rank] * 2);
        }
        return value(rank, i);
      });
    }
  }
}

inline void check_broadcasts(OpSet& set, hvd_dtype dtype) {
  for (int root = 0; root < set.size(); ++root) {
    for (const int64_t count : {1, 40'007}) {
      OpCase work(HVD_BROADCAST, dtype, set.id);
      work.batch.root = root;
      work.add(count, 1, count, [&](size_t i) { return element(dtype, 0, set.index(), i); });
      work.add(0, 1, 0, [](size_t) { return 0.0; });
      if (!set.claims(work)) return;
      CHECK(set.run(work));
      check_outcome(work, 0, [&](size_t i) { return element(dtype, 0, root, i); });
    }
  }
}

// Rank a sends (a + 2 b) % 4 times `scale` rows to rank b.
inline void check_alltoalls(OpSet& set, hvd_dtype dtype) {
  const auto rows = [](int from, int to) { return static_cast<int64_t>((from + 2 * to) % 4); };
  const auto value = [&](int from, int to, size_t i) {
    return element(dtype, HVD_SUM, from * 3 + to, i);
  };
  for (const int64_t scale : {0, 1, 5000}) {
    OpCase work(HVD_ALLTOALL, dtype, set.id);
    std::vector<int64_t> to, from;
    std::vector<double> sent, right;
    for (int r = 0; r < set.size(); ++r) {
      to.push_back(scale * rows(set.index(), r));
      from.push_back(scale * rows(r, set.index()));
      for (int64_t i = 0; i < to.back(); ++i) {
        sent.push_back(value(set.index(), r, static_cast<size_t>(i)));
      }
      for (int64_t i = 0; i < from.back(); ++i) {
        right.push_back(value(r, set.index(), static_cast<size_t>(i)));
      }
    }
    hvd_batch_tensor& tensor =
        work.add(static_cast<int64_t>(sent.size()), 1, static_cast<int64_t>(right.size()),
                 [&](size_t i) { return sent[i]; });
    tensor.rank_rows = work.keep(to);
    tensor.from_rows = work.keep(from);
    if (!set.claims(work)) return;
    CHECK(set.run(work));
    check_outcome(work, 0, [&](size_t i) { return right[i]; });
  }
}

inline void check_all_types(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    std::vector<hvd_dtype> dtypes{HVD_FLOAT16, HVD_INT64, HVD_BOOL};
    for (int number = 0; number < kDtypeCount; ++number) {
      const auto dtype = static_cast<hvd_dtype>(number);
      if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
    }
    for (const hvd_dtype dtype : fewer(dtypes, 3)) {
      check_allreduces(set, dtype);
      check_reducescatters(set, dtype);
      check_allgathers(set, dtype);
      check_broadcasts(set, dtype);
      check_alltoalls(set, dtype);
    }
  });
}

inline void check_factors(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    const int size = set.size();
    for (const int op : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
      const int64_t kept = op == HVD_ALLREDUCE ? 2 * size : 2;
      OpCase scaled(op, HVD_FLOAT32);
      scaled.batch.prescale = 0.5;
      scaled.batch.postscale = 4;
      scaled.add(2 * size, 1, kept, [&](size_t) { return rank.rank() + 1; });
      CHECK(set.run(scaled));
      check_outcome(scaled, 0, [&](size_t) { return size * (size + 1); });
      OpCase average(op, HVD_INT32);
      average.batch.postscale = 1.0 / size;
      average.batch.divisor = size;
      int sum = 0;
      for (int r = 0; r < size; ++r) sum += r % 2 == 0 ? -7 : -4;
      average.add(2 * size, 1, kept, [&](size_t) { return rank.rank() % 2 == 0 ? -7 : -4; });
      if (!set.claims(average)) continue;
      CHECK(set.run(average));
      check_outcome(average, 0, [&](size_t) { return sum / size; });
    }
  });
}

// A NaN of one rank is the result of every reduction, on every rank.
inline void check_nans(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    for (const hvd_dtype dtype : {HVD_FLOAT32, HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT64}) {
      for (const int op : kReductions) {
        for (const int64_t count : {7, 5000, 70'001}) {
          OpCase work(HVD_ALLREDUCE, dtype);
          work.batch.reduce_op = op;
          if (!set.claims(work)) continue;
          // Rank r has a NaN at every element i with i % (size + 1) == r.
          const auto ranks = static_cast<size_t>(set.size());
          work.add(count, 1, count, [&](size_t i) {
            return i % (ranks + 1) == static_cast<size_t>(set.index()) ? std::nan("") : 1.0;
          });
          CHECK(set.run(work));
          const std::vector<double> values = work.outcome(0);
          size_t wrong = 0;
          for (size_t i = 0; i < values.size(); ++i) {
            if (std::isnan(values[i]) != (i % (ranks + 1) < ranks)) ++wrong;
          }
          INFO("reduction ", op, " of ", name_of(dtype), ", ", count, " elements");
          CHECK(wrong == 0);
        }
      }
    }
  });
}

// An average of float16 is finite where its inputs are.
inline void check_half_averages(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    for (const int op : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
      for (const int64_t rows : {set.size(), 6000 * set.size()}) {
        OpCase work(op, HVD_FLOAT16);
        work.batch.postscale = 1.0 / set.size();
        work.batch.divisor = set.size();
        if (!set.claims(work)) continue;
        work.add(rows, 1, op == HVD_ALLREDUCE ? rows : rows / set.size(),
                 [](size_t) { return 60000.0; });
        CHECK(set.run(work));
        // A library rounds to multiples of 32 at each step.
        const std::vector<double> values = work.outcome(0);
        CHECK(std::all_of(values.begin(), values.end(),
                          [](double value) { return std::abs(value - 60000) <= 96; }));
      }
    }
  });
}

// How one rank holds a tensor: the ranks of a batch may differ in it.
enum class Holding { kApart, kInPlace, kApartLent, kInPlaceLent, kJoined };  // Lent: not kept

inline void hold(OpCase& work, Holding how) {
  const bool lent = how == Holding::kApartLent || how == Holding::kInPlaceLent;
  work.keeps_tensors = !lent;
  if (how == Holding::kInPlace || how == Holding::kInPlaceLent) work.in_place();
  if (how == Holding::kJoined) work.joined();
}

// The holding of a rank in each of the cases: one rank differs from the rest, or all kinds are mixed.
inline Holding holding(size_t pattern, int rank, bool may_join) {
  constexpr Holding kMixed[] = {Holding::kInPlace, Holding::kApart, Holding::kInPlaceLent,
                                Holding::kApartLent, Holding::kJoined};
  switch (pattern) {
    case 0:
      return rank == 0 ? Holding::kInPlace : Holding::kApart;
    case 1:
      return rank == 0 ? Holding::kApart : Holding::kInPlace;
    case 2:
      return rank != 1 ? Holding::kApart : may_join ? Holding::kJoined : Holding::kApartLent;
    default:
      return kMixed[static_cast<size_t>(rank) % (may_join ? 5 : 4)];
  }
}
constexpr size_t kHoldings = 4;

inline void check_held_allreduce(OpSet& set, int reduction, int64_t count, size_t pattern,
                                 double prescale) {
  OpCase work(HVD_ALLREDUCE, HVD_FLOAT32, set.id);
  work.batch.reduce_op = reduction;
  work.batch.prescale = prescale;
  if (!set.claims(work)) return;
  const auto value = [&](int rank, size_t i) { return element(HVD_FLOAT32, reduction, rank, i); };
  work.add(count, 1, count, [&](size_t i) { return value(set.index(), i); });
  const Holding own = holding(pattern, set.index(), true);
  hold(work, own);
  CHECK(set.run(work));
  if (own == Holding::kJoined) return;
  check_outcome(work, 0, [&](size_t i) {
    std::optional<double> right;
    for (int r = 0; r < set.size(); ++r) {
      if (holding(pattern, r, true) == Holding::kJoined) continue;
      const double more = value(r, i) * prescale;
      right = right ? combine(HVD_FLOAT32, reduction, *right, more) : more;
    }
    return *right;
  });
}

inline void check_held_broadcast(OpSet& set, int64_t count, size_t pattern) {
  OpCase work(HVD_BROADCAST, HVD_FLOAT32, set.id);
  work.batch.root = set.size() - 1;
  if (!set.claims(work)) return;
  work.add(count, 1, count, [&](size_t i) { return element(HVD_FLOAT32, 0, set.index(), i); });
  hold(work, holding(pattern, set.index(), false));
  CHECK(set.run(work));
  check_outcome(work, 0, [&](size_t i) { return element(HVD_FLOAT32, 0, work.batch.root, i); });
}

// Operations whose output is never the input: ranks differ in whether they keep their tensors.
inline void check_held_rows(OpSet& set, int op, int64_t rows, size_t pattern) {
  const int64_t size = set.size();
  const int64_t outcome = op == HVD_REDUCESCATTER ? rows_kept(rows, set.index(), set.size()).second
                          : op == HVD_ALLGATHER   ? rows * size
                                                  : rows / size * size;
  OpCase work(op, HVD_FLOAT32, set.id);
  const auto value = [&](int rank, size_t i) { return element(HVD_FLOAT32, HVD_SUM, rank, i); };
  hvd_batch_tensor& tensor = work.add(op == HVD_ALLTOALL ? outcome : rows, 1, outcome,
                                      [&](size_t i) { return value(set.index(), i); });
  const auto members = static_cast<size_t>(size);
  if (op == HVD_ALLGATHER) tensor.rank_rows = work.keep(std::vector<int64_t>(members, rows));
  if (op == HVD_ALLTOALL) {
    tensor.rank_rows = tensor.from_rows = work.keep(std::vector<int64_t>(members, rows / size));
  }
  if (!set.claims(work)) return;
  work.keeps_tensors = (static_cast<size_t>(set.index()) + pattern) % 2 == 0;
  CHECK(set.run(work));
  check_outcome(work, 0, [&](size_t i) {
    if (op == HVD_REDUCESCATTER) {
      const auto first = static_cast<size_t>(rows_kept(rows, set.index(), set.size()).first);
      return reduced(HVD_FLOAT32, HVD_SUM, set.size(), first + i);
    }
    const auto part = static_cast<size_t>(op == HVD_ALLGATHER ? rows : rows / size);
    const size_t at = op == HVD_ALLGATHER ? 0 : static_cast<size_t>(set.index()) * part;
    return value(static_cast<int>(i / part), at + i % part);
  });
}

// Ranks that work in place, on a copy, on a packed copy or without the tensor, side by side. The sizes
// lie around those at which the libraries change their algorithm (2, 8, 64, 128, 256 KiB).
inline void check_holdings(const PluginLinks& links, const std::vector<int32_t>& machines,
                           const std::vector<int64_t>& counts) {
  run_plugin_world(links, machines, [&](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    for (const int64_t count : counts) {
      for (size_t pattern = 0; pattern < kHoldings; ++pattern) {
        for (const int reduction : kReductions) {
          const bool is_exact = reduction != HVD_PRODUCT || set.size() <= 8;  // in float32
          const bool is_mixed = pattern + 1 == kHoldings;
          if (reduction == HVD_SUM || (is_mixed && is_exact)) {
            check_held_allreduce(set, reduction, count, pattern, 1);
          }
        }
        check_held_allreduce(set, HVD_SUM, count, pattern, 0.5);
        check_held_broadcast(set, count, pattern);
        for (const int op : {HVD_REDUCESCATTER, HVD_ALLGATHER, HVD_ALLTOALL}) {
          check_held_rows(set, op, count, pattern);
        }
      }
    }
  });
}

// Overlapping sets side by side, which the ranks start in different orders.
inline void check_sets(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    const std::vector<std::vector<int32_t>> members{{0, 1, 2}, {0, 2}, {1, 2}, {0, 1}};
    std::deque<OpSet> made;
    std::vector<OpSet*> sets;
    for (size_t s = 0; s < members.size(); ++s) {
      const auto& ranks = members[s];
      if (std::find(ranks.begin(), ranks.end(), rank.rank()) == ranks.end()) continue;
      sets.push_back(&made.emplace_back(rank, static_cast<int32_t>(s), ranks));
    }
    if (rank.rank() % 2 == 1) std::reverse(sets.begin(), sets.end());
    std::vector<std::unique_ptr<OpCase>> works;
    std::vector<Outcome> outcomes(sets.size() * 10);
    std::vector<size_t> order;  // in which they ended
    for (size_t s = 0; s < sets.size(); ++s) {
      for (size_t i = 0; i < 10; ++i) {
        OpCase& work =
            *works.emplace_back(std::make_unique<OpCase>(HVD_ALLREDUCE, HVD_INT32, sets[s]->id));
        work.add(i % 3 == 0 ? 30'000 : 5, 1, i % 3 == 0 ? 30'000 : 5,
                 [&](size_t) { return sets[s]->index() + 1; });
        rank.start(work.ready(sets[s]->next++), outcomes[works.size() - 1]);
      }
    }
    std::vector<bool> ended(outcomes.size());
    CHECK(rank.step_until([&] {
      for (size_t i = 0; i < outcomes.size(); ++i) {
        if (outcomes[i].done && !ended[i]) {
          ended[i] = true;
          // Those of a set end in their order.
          if (i % 10 > 0) CHECK(ended[i - 1]);
        }
      }
      return std::all_of(ended.begin(), ended.end(), [](bool one) { return one; });
    }) == HVD_OK);
    for (size_t i = 0; i < works.size(); ++i) {
      const int size = sets[i / 10]->size();
      CHECK(outcomes[i].status == HVD_OK);
      check_outcome(*works[i], 0, [&](size_t) { return size * (size + 1) / 2; });
    }
    OpCase last(HVD_ALLREDUCE, HVD_INT32);
    last.add(1, 1, 1, [](size_t) { return 1.0; });
    CHECK(made.front().run(last));
    for (const OpSet& set : made) {
      if (set.id != 0) CHECK(rank.op().drop_set(rank.op_context(), set.id) == HVD_OK);
    }
  });
}

// A rank without the tensor (it has joined) changes nothing.
inline void check_joined(const PluginLinks& links) {
  run_plugin_world(links, {0, 0, 1}, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    for (const int op : kReductions) {
      OpCase work(HVD_ALLREDUCE, HVD_FLOAT64);
      work.batch.reduce_op = op;
      if (!set.claims(work)) continue;
      hvd_batch_tensor& tensor = work.add(3000, 1, 3000, [](size_t) { return 3.0; });
      if (rank.rank() == 1) tensor.input = tensor.output = nullptr;
      CHECK(set.run(work));
      if (rank.rank() == 1) continue;
      const double right = op == HVD_SUM ? 6 : op == HVD_PRODUCT ? 9 : 3;
      check_outcome(work, 0, [&](size_t) { return right; });
    }
  });
}

inline void check_refusals(const PluginLinks& links) {
  run_plugin_world(links, {0}, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    OpCase work(HVD_ALLREDUCE, HVD_INT32);
    work.add(1, 1, 1, [](size_t) { return 1.0; });
    CHECK(set.claims(work));
    work.batch.reduce_op = HVD_ADASUM;
    CHECK(!set.claims(work));
    work.batch.reduce_op = HVD_SUM;
    work.batch.dtype = 77;
    CHECK(!set.claims(work));
    work.batch.dtype = HVD_INT32;
    work.batch.op = HVD_JOIN;
    CHECK(!set.claims(work));
    work.batch.op = HVD_ALLREDUCE;
    work.batch.process_set = 5;
    Outcome outcome;
    CHECK(rank.op().run(rank.op_context(), &work.ready(1), note_outcome, &outcome) ==
          HVD_NOT_FOUND);
    CHECK(!outcome.done);
    CHECK(rank.op().drop_set(rank.op_context(), 5) == HVD_NOT_FOUND);
    const int32_t self = 0;
    CHECK(rank.op().new_set(rank.op_context(), 5, &self, 1) == HVD_OK);
    CHECK(rank.op().new_set(rank.op_context(), 5, &self, 1) == HVD_ALREADY_EXISTS);
    CHECK(rank.op().drop_set(rank.op_context(), 5) == HVD_OK);
    work.batch.process_set = 0;
    CHECK(set.run(work));
  });
}

// An abort on one rank fails the batches of all waiting ranks with its cause, also of sleeping ranks.
inline void check_op_abort(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [&links](PluginRank& rank) {
    if (links.processes != nullptr) links.processes->aborted = true;
    OpSet set = OpSet::everyone(rank);
    OpCase first(HVD_ALLREDUCE, HVD_INT32);
    const auto kept = std::make_shared<OpCase>(HVD_ALLREDUCE, HVD_INT32);
    // Threads that do not know of the abort yet may still read from this memory.
    if (links.processes == nullptr) rank.kept = kept;
    OpCase& second = *kept;
    second.keeps_tensors = false;
    first.add(1, 1, 1, [](size_t) { return 1.0; });
    second.add(100'000, 1, 100'000, [](size_t) { return 1.0; });
    CHECK(set.run(first));
    rank.meet(1);
    if (rank.rank() == 1) {
      rank.op().abort(rank.op_context(), "rank 1 had enough");
      rank.link().abort(rank.link_context(), "rank 1 had enough");
      CHECK(rank.step(false) == HVD_ABORTED);
      return;
    }
    Outcome outcome;
    rank.start(second.ready(set.next++), outcome);
    const int status = rank.step_until([&] { return outcome.done; });
    CHECK((status == HVD_ABORTED || outcome.status == HVD_ABORTED));
    CHECK((outcome.done ? outcome.error : rank.error) == "rank 1 had enough");
    rank.op().abort(rank.op_context(), "rank 1 had enough");
  });
}

inline std::vector<std::vector<int32_t>> op_worlds() {
  return {{0}, {0, 0}, {0, 0, 0}, {0, 1}, {0, 1, 0, 1}};
}

inline std::vector<std::vector<int32_t>> numeric_worlds() {
  return fewer<std::vector<int32_t>>(
      {{0, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}}, 2);
}

inline std::vector<std::vector<int32_t>> holding_worlds() { return {{0, 0, 0, 0}, {0, 1, 0, 1}}; }
inline std::vector<int64_t> holding_sizes() {
  return fewer<int64_t>(
      {16'384, 1, 511, 513, 2'048, 16'383, 30'000, 32'768, 65'535, 65'537, 100'000}, 3);
}

}  // namespace hvd::test

#define HVD_OP_CONFORMANCE(name, links)                                                          \
  TEST_CASE(name ": every operation, type, reduction and shape matches the arithmetic") {        \
    for (const auto& world : hvd::test::op_worlds()) {                                           \
      hvd::test::check_all_types(links, world);                                                  \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": factors are applied, an integer average truncates toward zero") {            \
    for (const auto& world : hvd::test::op_worlds()) {                                           \
      hvd::test::check_factors(links, world);                                                    \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": a NaN of any rank is the result of every reduction, on every rank") {        \
    for (const auto& world : hvd::test::numeric_worlds()) hvd::test::check_nans(links, world);   \
  }                                                                                              \
  TEST_CASE(name ": an average of float16 does not overflow") {                                  \
    for (const auto& world : hvd::test::numeric_worlds()) {                                      \
      hvd::test::check_half_averages(links, world);                                              \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": ranks differ in where a tensor lies and whether they keep it") {             \
    for (const auto& world : hvd::test::holding_worlds()) {                                      \
      hvd::test::check_holdings(links, world, hvd::test::holding_sizes());                       \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": many ranks differ in where a tensor lies and whether they keep it") {        \
    hvd::test::check_holdings(links, std::vector<int32_t>(18), {1'000, 16'384, 70'000});         \
  }                                                                                              \
  TEST_CASE(name ": sets run side by side, each in its order") {                                 \
    for (const auto& world : std::vector<std::vector<int32_t>>{{0, 0, 0}, {0, 1, 0}}) {          \
      hvd::test::check_sets(links, world);                                                       \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": a rank that has joined changes nothing") { hvd::test::check_joined(links); } \
  TEST_CASE(name ": it claims only what it can do, unknown sets are refused") {                  \
    hvd::test::check_refusals(links);                                                            \
  }                                                                                              \
  TEST_CASE(name ": an abort fails what is pending, with its cause") {                           \
    for (const auto& world : std::vector<std::vector<int32_t>>{{0, 0, 0}, {0, 1, 0}}) {          \
      hvd::test::check_op_abort(links, world);                                                   \
    }                                                                                            \
  }
