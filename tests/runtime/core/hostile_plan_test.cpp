// A root that sends plans and notices with wrong numbers: the rank that receives one fails with an
// error, before it uses a number as a size or an index.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <thread>

#include "base/text.h"
#include "runtime/rank_checks.h"
#include "runtime/wire/message.h"

using namespace hvd::runtime;
using hvd::Bytes;
using hvd::ByteWriter;
using hvd::Status;
using hvd::test::Ranks;
using hvd::test::Work;

namespace {

// Sends rank 1 a message in the name of rank 0 while only rank 1 waits for `work`, so that no plan
// has `work`. Returns the error of `work`.
Status answer_with(Work& work, const std::function<Bytes()>& message) {
  Ranks ranks(2);
  hvd::test::require_started(ranks);
  ranks.each([&](int rank) {
    Work first = hvd::test::sum_of("first");
    CHECK(first.run(ranks[rank]).ok());
  });
  const uint64_t before = ranks.world().sent;
  REQUIRE(work.submit(ranks[1]).ok());
  const auto deadline = hvd::Deadline::after_seconds(200);
  while (ranks.world().sent == before && !deadline.passed()) std::this_thread::yield();
  auto& mailbox = ranks.world().mailboxes[1];
  {
    const Bytes bytes = message();
    const hvd::MutexLock lock(mailbox.mutex);
    mailbox.messages.push_back({0, std::string(hvd::as_text(bytes))});
  }
  ranks.world().ring(1);
  return work.finish(ranks[1]);
}

template <typename Message>
Bytes encoded(const Message& message) {
  ByteWriter out;
  encode(message, out);
  return out.take();
}

// The plan after those of the start and of the first work: executes a float32 gather of [2, 3] by
// rank 1 and [4, 3] by rank 0.
Plan plan_of_gather() {
  Plan plan;
  plan.sequence = 2;
  PlanItem item;
  item.full = true;
  item.name = "w";
  item.request.op = HVD_ALLGATHER;
  item.request.reduce_op = HVD_SUM;
  item.request.tensors = {{HVD_FLOAT32, {4, 3}}};
  item.rows = {{0, {4}}, {1, {2}}};
  plan.items.push_back(item);
  plan.batches = {{{0, HVD_FLOAT32}}};
  return plan;
}

void check_refusal(const std::function<void(Plan*)>& change, const char* part) {
  Work work(HVD_ALLGATHER, "w", std::vector<float>(6), HVD_FLOAT32, {2, 3});
  const Status status = answer_with(work, [&] {
    Plan plan = plan_of_gather();
    change(&plan);
    return encoded(plan);
  });
  CHECK_MESSAGE(status.message().find("rank 0 sent rank 1 something wrong: ") == 0,
                status.message());
  CHECK_MESSAGE(status.message().find(part) != std::string::npos, status.message());
}

}  // namespace

TEST_CASE("a plan with other rows than the ranks brought is refused") {
  check_refusal([](Plan* plan) { plan->items[0].rows.clear(); }, "did not all arrive");
  check_refusal([](Plan* plan) { plan->items[0].rows[1].rank = 7; }, "did not all arrive");
  check_refusal([](Plan* plan) { plan->items[0].rows[0].rows.clear(); }, "did not all arrive");
  check_refusal([](Plan* plan) { plan->items[0].rows[1].rows[0] = 1 << 20; }, "other rows");
  check_refusal([](Plan* plan) { plan->items[0].rows[0].rows[0] = int64_t{1} << 62; },
                "more than memory can hold");
}

TEST_CASE("a plan that runs another operation than the rank asked for is refused") {
  check_refusal([](Plan* plan) { plan->items[0].request.op = HVD_REDUCESCATTER; },
                "Mismatched operations of 'w'");
  check_refusal([](Plan* plan) { plan->items[0].request.tensors[0].shape[1] = 4; },
                "Mismatched ALLGATHER tensor shapes of 'w'");
  check_refusal([](Plan* plan) { plan->items[0].request.op = HVD_JOIN; }, "ends a join");
  check_refusal([](Plan* plan) { plan->items[0].request.op = kAddProcessSets; },
                "Mismatched process sets");
}

TEST_CASE("a plan whose batches do not fit its items is refused") {
  check_refusal([](Plan* plan) { plan->batches.clear(); }, "does not run all of it");
  check_refusal([](Plan* plan) { plan->batches[0].clear(); }, "a batch of nothing");
  check_refusal([](Plan* plan) { plan->batches[0][0].dtype = HVD_INT8; }, "did not agree on");
  check_refusal([](Plan* plan) { plan->batches[0][0].dtype = 200; }, "did not agree on");
  check_refusal([](Plan* plan) { plan->batches.push_back(plan->batches[0]); }, "runs already");
  check_refusal([](Plan* plan) { plan->items.push_back(plan->items[0]); }, "planned already");
  static const std::array<std::byte, 72> kData{};
  check_refusal([](Plan* plan) { plan->eager_data = {kData}; }, "cannot be reduced one-shot");
}

TEST_CASE("a notice about a rank that does not exist is refused") {
  const auto refusal = [](MessageKind kind, const Notice& notice) {
    Work work = hvd::test::sum_of("w");
    return answer_with(work,
                       [&] {
                         ByteWriter out;
                         encode(kind, notice, out);
                         return out.take();
                       })
        .message();
  };
  const char* range = "; the job has ranks 0 to 1";
  for (const int32_t rank : {-1, 2, 1 << 30}) {
    CHECK(refusal(MessageKind::kStop, {rank, HVD_OK, {}}).find(range) != std::string::npos);
  }
  CHECK(refusal(MessageKind::kAbort, {0, HVD_ABORTED, "it broke", 99}).find(range) !=
        std::string::npos);
  CHECK(refusal(MessageKind::kAbort, {0, HVD_OK, "it broke"}).find("a failure with code 0") !=
        std::string::npos);
  CHECK(refusal(MessageKind::kStopped, {0, HVD_OK, {}}).find("wrong side") != std::string::npos);
  CHECK(refusal(MessageKind::kAbort, {0, HVD_ABORTED, "it broke", 0}) == "it broke");
}
