// Ranks of one batch that hold its tensors differently: in place, apart, kept, without them.
#pragma once

#include "conformance/op_case.h"

namespace hvd::test {

// How one rank holds a tensor. The ranks of a batch may differ.
enum class Holding { kApart, kInPlace, kApartLent, kInPlaceLent, kJoined };  // Lent: not kept

inline void hold(OpCase& work, Holding how) {
  const bool lent = how == Holding::kApartLent || how == Holding::kInPlaceLent;
  work.keeps_tensors = !lent;
  if (how == Holding::kInPlace || how == Holding::kInPlaceLent) work.in_place();
  if (how == Holding::kJoined) work.joined();
}

// Returns a rank's holding in each of the cases: one rank differs from the rest, or all kinds are mixed.
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

// Ranks that work in place, on a copy, on a packed copy or without the tensor, in one batch. The
// sizes are near those at which libraries change their algorithm (2, 8, 64, 128, 256 KiB).
inline void check_holdings(const PluginLinks& links, const std::vector<int32_t>& machines,
                           const std::vector<int64_t>& counts) {
  run_plugin_world(links, machines, [&](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    for (const int64_t count : counts) {
      for (size_t pattern = 0; pattern < kHoldings; ++pattern) {
        for (const int reduction : kReductions) {
          const bool is_exact = reduction != HVD_PRODUCT || set.size() <= 8;  // product in float32
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

inline std::vector<std::vector<int32_t>> holding_worlds() { return {{0, 0, 0, 0}, {0, 1, 0, 1}}; }
inline std::vector<int64_t> holding_sizes() {
  return fewer<int64_t>(
      {16'384, 1, 511, 513, 2'048, 16'383, 30'000, 32'768, 65'535, 65'537, 100'000}, 3);
}

}  // namespace hvd::test
