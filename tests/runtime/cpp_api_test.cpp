// A single-process job through horovod.hpp.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>

#include "horovod/horovod.hpp"

namespace {

int status_of(auto&& body) {
  try {
    body();
  } catch (const horovod::Error& error) {
    CHECK(std::string(error.what()) != "");
    return error.status();
  }
  return HVD_OK;
}

}  // namespace

TEST_CASE("element types are those of the C ABI") {
  CHECK(horovod::dtype_of<float>() == HVD_FLOAT32);
  CHECK(horovod::dtype_of<bool>() == HVD_BOOL);
  CHECK(horovod::dtype_of<signed char>() == HVD_INT8);
  CHECK(horovod::dtype_of<unsigned short>() == HVD_UINT16);
  CHECK(horovod::dtype_of<long>() == HVD_INT64);
  CHECK(horovod::dtype_of<unsigned long long>() == HVD_UINT64);
  CHECK(horovod::dtype_of<horovod::Float16>() == HVD_FLOAT16);
  CHECK(horovod::dtype_of<horovod::BFloat16>() == HVD_BFLOAT16);
}

TEST_CASE("outside of a job there is a sentence") {
  float value = 1;
  CHECK(status_of([] { horovod::rank(); }) == HVD_FAILED_PRECONDITION);
  CHECK(status_of([&] { horovod::allreduce(value, "v"); }) == HVD_FAILED_PRECONDITION);
  CHECK(status_of([] { horovod::barrier(); }) == HVD_FAILED_PRECONDITION);
}

TEST_CASE("all operations on numbers, ranges and tensors") {
  const horovod::Job job;
  CHECK(horovod::rank() == 0);
  CHECK(horovod::size() == 1);
  CHECK(horovod::local_size() == 1);
  CHECK(horovod::cross_rank() == 0);

  float number = 3;
  horovod::allreduce(number, "number", {.op = HVD_SUM, .prescale = 2});
  CHECK(number == 6);
  std::vector<int32_t> vector{1, -2, 3};
  horovod::allreduce(vector, "vector");
  CHECK(vector == std::vector<int32_t>{1, -2, 3});
  std::array<double, 6> numbers{1, 2, 3, 4, 5, 6};
  horovod::allreduce(horovod::Tensor(numbers.data(), {2, 3}), "matrix", {.op = HVD_ADASUM});
  CHECK(numbers[5] == 6);
  horovod::broadcast(numbers, 0, "numbers");

  const std::array<double, 6> fixed = numbers;
  const auto gathered = horovod::allgather(horovod::Tensor(fixed.data(), {2, 3}), "rows");
  static_assert(std::is_same_v<decltype(gathered.data()), std::span<const double>>);
  CHECK(gathered.data().size() == 6);
  CHECK(gathered.data()[3] == 4);
  CHECK(gathered.shape()[0] == 2);
  const std::array<int32_t, 1> splits{1};
  const auto turned = horovod::alltoall(horovod::Tensor(fixed.data(), {2, 3}), splits, "turn");
  CHECK(turned.data().size() == 3);
  CHECK(turned.received_splits()[0] == 1);
  const auto own = horovod::reducescatter(fixed, "own", {.op = HVD_SUM});
  CHECK(own.data().back() == 6);
  const auto none = horovod::allgather(horovod::Tensor(fixed.data(), {0, 3}), "none");
  CHECK(none.data().empty());
  horovod::barrier();
}

TEST_CASE("process sets and join") {
  const horovod::Job job;
  const std::array<int32_t, 1> ranks{0};
  // Set 0 has these ranks already.
  CHECK(status_of([&] { horovod::ProcessSet again(ranks); }) == HVD_ALREADY_EXISTS);
  CHECK(horovod::join() == 0);
  float value = 2;
  horovod::allreduce(value, "after");
  CHECK(value == 2);
}

TEST_CASE("work can be polled, waited for in steps, moved and left to its destructor") {
  const horovod::Job job;
  std::vector<float> values(1000, 1);
  auto work = horovod::allreduce_async(values, "values", {.op = HVD_SUM, .postscale = 3});
  auto moved = std::move(work);
  while (!moved.wait_for(10)) {
  }
  CHECK(moved.done());
  CHECK(values[999] == 3);
  moved = horovod::broadcast_async(values, 0, "others");
  horovod::allgather_async(values, "left");
}

TEST_CASE("an error is thrown with its status, and the next call works") {
  const horovod::Job job;
  std::vector<float> values(4);
  CHECK(status_of([&] { horovod::broadcast(values, 7, "root"); }) == HVD_INVALID_ARGUMENT);
  const auto first = horovod::allreduce_async(values, "twice");
  const int again = status_of([&] { horovod::allreduce_async(values, "twice").wait(); });
  CHECK((again == HVD_ALREADY_EXISTS || first.done()));
  first.wait();
  horovod::allreduce(values, "once");
}

TEST_CASE("a rank sends messages to itself") {
  const horovod::Job job;
  std::vector<float> got(3);
  const auto receive = horovod::recv_async(got, HVD_ANY_RANK, {.tag = 4});
  CHECK(!receive.done());
  horovod::send(std::vector<float>{1, 2, 3}, 0, {.tag = 4});
  receive.wait();
  CHECK(got == std::vector<float>{1, 2, 3});
  CHECK(horovod::source_of(receive) == 0);
  int32_t number = 0;
  const auto sent = horovod::send_async(int32_t{7}, 0);
  CHECK(horovod::recv(number, 0) == 0);
  sent.wait();
  CHECK(number == 7);
  CHECK(status_of([&] { horovod::send(number, 1); }) == HVD_INVALID_ARGUMENT);
  CHECK(status_of([&] { horovod::recv(number, 0, {.timeout_seconds = 0.01}); }) ==
        HVD_DEADLINE_EXCEEDED);
}
