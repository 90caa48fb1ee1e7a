// Grouped work of in-process runtimes: all of a group or nothing, alone or with other work.
#include <doctest/doctest.h>

#include <atomic>

#include "runtime/rank_checks.h"

using hvd::Deadline;
using hvd::test::Ranks;
using hvd::test::require_started;
using hvd::test::sum_of;
using hvd::test::Work;

namespace {

// Returns the batches in which rank 0 has run a group and a tensor, submitted together each time.
uint64_t batches_of_rounds(Ranks& ranks, int rounds) {
  const uint64_t before = ranks[0].counts().batches;
  ranks.each([&](int rank) {
    for (int round = 0; round < rounds; ++round) {
      Work group = sum_of("group", {1});
      float other = 2;
      hvd_tensor both[2] = {group.tensor, {nullptr, HVD_FLOAT32, 0, nullptr, &other, &other}};
      group.submission.tensor_count = 2;
      group.submission.tensors = both;
      Work single = sum_of("single", {4});
      REQUIRE(group.submit(ranks[rank]).ok());
      REQUIRE(single.submit(ranks[rank]).ok());
      CHECK(group.finish(ranks[rank]).ok());
      CHECK(single.finish(ranks[rank]).ok());
      CHECK(group.result<float>()[0] == 2);
      CHECK(other == 4);
      CHECK(single.result<float>()[0] == 8);
    }
  });
  return ranks[0].counts().batches - before;
}

}  // namespace

TEST_CASE("a group runs whole, with tensors of several dtypes") {
  FOR_ALL_LINKS(options);
  Ranks ranks(3, options);
  require_started(ranks);
  ranks.each([&](int rank) {
    float a = static_cast<float>(rank);
    double b[2] = {1, static_cast<double>(rank)};
    float c = 5;
    const int64_t two = 2;
    hvd_tensor tensors[3] = {{nullptr, HVD_FLOAT32, 0, nullptr, &a, &a},
                             {nullptr, HVD_FLOAT64, 1, &two, b, b},
                             {nullptr, HVD_FLOAT32, 0, nullptr, &c, &c}};
    hvd_submission submission{};
    submission.struct_size = sizeof submission;
    submission.op = HVD_ALLREDUCE;
    submission.reduce_op = HVD_SUM;
    submission.name = "group";
    submission.device = HVD_CPU;
    submission.tensor_count = 3;
    submission.tensors = tensors;
    hvd_handle handle = 0;
    REQUIRE(ranks[rank].submit(submission, &handle).ok());
    const auto status = ranks[rank].wait(handle, Deadline::after_seconds(200));
    REQUIRE(status);
    CHECK_MESSAGE(status->ok(), status->message());
    CHECK(a == 3);
    CHECK(b[0] == 3);
    CHECK(b[1] == 3);
    CHECK(c == 15);
    CHECK(ranks[rank].release(handle).ok());
  });
}

TEST_CASE("a group shares a batch with others, and with HOROVOD_DISABLE_GROUP_FUSION never") {
  FOR_ALL_LINKS(options);
  constexpr int kRounds = 50;
  {
    Ranks ranks(2, options);
    require_started(ranks);
    CHECK(batches_of_rounds(ranks, kRounds) < 2 * kRounds);
  }
  REQUIRE(options.settings.set("disable_group_fusion", "1").ok());
  Ranks ranks(2, options);
  require_started(ranks);
  CHECK(batches_of_rounds(ranks, kRounds) == 2 * kRounds);
}
