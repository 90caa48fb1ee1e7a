// The tests that every op plugin must pass. They call it through the plugin ABI only, and compare its
// results with float64 arithmetic. They skip operations that the plugin does not support. A test file
// instantiates them with HVD_OP_CONFORMANCE("name", links), where links is a PluginLinks.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>

#include "conformance/op_case.h"
#include "conformance/op_holdings.h"
#include "conformance/op_numbers.h"

namespace hvd::test {

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

// Rank r contributes r % 3 times `scale` rows of 2, so that some ranks have none, and r + 1 rows.
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

// Overlapping sets at the same time; the ranks start them in different orders. On devices, batches
// of all sets have one order.
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
    const bool on_devices = op_memory().device != HVD_CPU;
    if (rank.rank() % 2 == 1 && !on_devices) std::reverse(sets.begin(), sets.end());
    std::vector<std::pair<size_t, size_t>> order_of_starts;  // set and number of each batch
    for (size_t n = 0; n < sets.size() * 10; ++n) {
      order_of_starts.emplace_back(on_devices ? n % sets.size() : n / 10,
                                   on_devices ? n / sets.size() : n % 10);
    }
    std::vector<std::unique_ptr<OpCase>> works(order_of_starts.size());
    std::vector<Outcome> outcomes(works.size());
    for (const auto& [s, i] : order_of_starts) {
      const size_t index = s * 10 + i;
      works[index] = std::make_unique<OpCase>(HVD_ALLREDUCE, HVD_INT32, sets[s]->id);
      const int value = sets[s]->index() + 1;
      works[index]->add(i % 3 == 0 ? 30'000 : 5, 1, i % 3 == 0 ? 30'000 : 5,
                        [&](size_t) { return value; });
      rank.start(works[index]->ready(sets[s]->next++), outcomes[index]);
    }
    std::vector<bool> ended(outcomes.size());
    CHECK(rank.step_until([&] {
      for (size_t i = 0; i < outcomes.size(); ++i) {
        if (outcomes[i].done && !ended[i]) {
          ended[i] = true;
          // Batches of one set end in their order.
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
    // Threads that have not seen the abort may still read from this memory.
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
  TEST_CASE(name ": an average of float16 neither overflows nor vanishes") {                     \
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
