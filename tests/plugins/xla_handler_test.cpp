// The handler that XLA calls for a collective of a compiled JAX program, without XLA. The test overwrites and frees
// XLA's description of the call when the handler returns, before the collective is complete.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "python/jax_ops/library.h"
#include "python/jax_ops/xla_ffi.h"

extern "C" hvd::jax::FfiError* horovod_jax_execute(hvd::jax::FfiCall* call);
extern "C" hvd::jax::FfiError* horovod_jax_compare(hvd::jax::FfiCall* call);
extern "C" void horovod_jax_count(int64_t model, int64_t* counter, hvd::jax::Compare compare);
extern "C" void horovod_jax_bind(const hvd::jax::Library* library, int32_t minor);
extern "C" void horovod_jax_note_compilation(const char* program);

namespace {

using namespace hvd::jax;

// The only submission; the test completes its collective.
struct Runtime {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_complete = false;
  std::vector<int64_t> shape;  // shape of the output
  std::vector<float> output;
  std::string program;

  bool has_future_ended = false;
  std::string error;  // error of the future
};

Runtime* runtime = nullptr;

int submit(const hvd_submission* submission, hvd_handle* handle, char*, size_t) {
  if (submission->program != nullptr) runtime->program = submission->program;
  *handle = 1;
  return HVD_OK;
}

int wait(hvd_handle, double timeout, char*, size_t) {
  std::unique_lock lock(runtime->mutex);
  const bool done = runtime->changed.wait_for(lock, std::chrono::duration<double>(timeout),
                                              [] { return runtime->is_complete; });
  return done ? HVD_OK : HVD_IN_PROGRESS;
}

int poll(hvd_handle, int32_t* done, char*, size_t) {
  const std::lock_guard lock(runtime->mutex);
  *done = runtime->is_complete ? 1 : 0;
  return HVD_OK;
}

int get_output(hvd_handle, uint32_t, hvd_output* output, char*, size_t) {
  output->data = runtime->output.data();
  output->ndim = static_cast<int32_t>(runtime->shape.size());
  output->shape = runtime->shape.data();
  return HVD_OK;
}

int release(hvd_handle, char*, size_t) { return HVD_OK; }

std::array<char, 2> future_memory, error_memory;

FfiError* create_error(FfiErrorCreate* create) {
  runtime->error = create->message;
  return reinterpret_cast<FfiError*>(&error_memory);
}

FfiError* create_future(FfiFutureCreate* create) {
  create->future = reinterpret_cast<FfiFuture*>(&future_memory);
  return nullptr;
}

FfiError* end_future() {
  const std::lock_guard lock(runtime->mutex);
  runtime->has_future_ended = true;
  runtime->changed.notify_all();
  return nullptr;
}

FfiError* set_available(FfiFutureSetAvailable*) { return end_future(); }
FfiError* set_error(FfiFutureSetError*) { return end_future(); }

// XLA's description of a call with one argument and one result, in a single allocation.
struct Frame {
  std::array<int64_t, 2> input_dims, output_dims;
  FfiBuffer input, output;
  std::array<void*, 1> arguments, results;
  std::array<std::array<char, 16>, 3> texts;
  std::array<FfiBytes, 3> names;
  int64_t kind;
  FfiScalar kind_scalar;
  std::array<FfiBytes, 2> values;
  std::array<int32_t, 3> types;
  std::array<FfiBytes*, 3> name_items;
  std::array<void*, 3> items;
};

FfiBytes copied(std::array<char, 16>& memory, const char* text) {
  std::strncpy(memory.data(), text, memory.size() - 1);
  return {memory.data(), std::strlen(text)};
}

const FfiApi* api() {
  static const FfiApi api = [] {
    FfiApi made{};
    made.error_create = create_error;
    made.future_create = create_future;
    made.future_set_available = set_available;
    made.future_set_error = set_error;
    return made;
  }();
  return &api;
}

// Calls the handler with a frame that is freed at return, like XLA's description.
FfiError* call_handler(hvd_op_kind kind, float* input, float* output,
                       std::array<int64_t, 2> shape) {
  auto frame = std::make_unique<Frame>();
  frame->input_dims = {2, 1};
  frame->output_dims = shape;
  frame->input = {sizeof(FfiBuffer), nullptr, 11, input, 2, frame->input_dims.data()};
  frame->output = {sizeof(FfiBuffer), nullptr, 11, output, 2, frame->output_dims.data()};
  frame->arguments = {&frame->input};
  frame->results = {&frame->output};
  frame->kind = kind;
  frame->kind_scalar = {5, &frame->kind};
  frame->names = {copied(frame->texts[0], "kind"), copied(frame->texts[1], "name"),
                  copied(frame->texts[2], "program")};
  frame->values = {FfiBytes{"gather.1", 8}, FfiBytes{"jit_step", 8}};
  frame->types = {kFfiScalar, kFfiString, kFfiString};
  frame->name_items = {&frame->names[0], &frame->names[1], &frame->names[2]};
  frame->items = {&frame->kind_scalar, &frame->values[0], &frame->values[1]};
  FfiCall call{};
  call.api = api();
  call.arguments = {sizeof call.arguments, nullptr, 1, nullptr, frame->arguments.data()};
  call.results = {sizeof call.results, nullptr, 1, nullptr, frame->results.data()};
  call.attributes = {
      sizeof call.attributes, nullptr, 3, frame->types.data(), frame->name_items.data(),
      frame->items.data()};
  FfiError* failed = horovod_jax_execute(&call);
  std::memset(static_cast<void*>(frame.get()), 0xa5, sizeof *frame);
  if (failed == nullptr) CHECK(call.future != nullptr);
  return failed;
}

// Calls the handler that counts the reductions of a model with one parameter.
FfiError* call_comparison(int64_t model, float* values) {
  std::array<char, 16> text{};
  FfiBytes name = copied(text, "model");
  std::array<int64_t, 2> dims{2, 1};
  FfiBuffer buffer{sizeof(FfiBuffer), nullptr, 11, values, 2, dims.data()};
  FfiScalar scalar{5, &model};
  std::array<void*, 1> arguments{&buffer}, items{&scalar};
  std::array<int32_t, 1> types{kFfiScalar};
  std::array<FfiBytes*, 1> names{&name};
  FfiCall call{};
  call.api = api();
  call.arguments = {sizeof call.arguments, nullptr, 1, nullptr, arguments.data()};
  call.attributes = {sizeof call.attributes, nullptr, 1, types.data(), names.data(), items.data()};
  return horovod_jax_compare(&call);
}

void complete_and_await() {
  std::unique_lock lock(runtime->mutex);
  runtime->is_complete = true;
  runtime->changed.notify_all();
  REQUIRE(runtime->changed.wait_for(lock, std::chrono::seconds(20),
                                    [] { return runtime->has_future_ended; }));
}

void start() {
  static const Library library{submit, wait, poll, get_output, release};
  horovod_jax_bind(&library, 1);
  // Never destroyed: the waiter's thread lives as long as the process.
  static std::deque<Runtime>* const all = new std::deque<Runtime>;
  runtime = &all->emplace_back();
}

}  // namespace

TEST_CASE("results are copied after XLA has freed its description of the call") {
  for (const hvd_op_kind kind : {HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    start();
    runtime->shape = {4, 1};
    runtime->output = {1, 2, 3, 4};
    std::array<float, 2> input{};
    std::array<float, 4> output{};
    CHECK(call_handler(kind, input.data(), output.data(), {4, 1}) == nullptr);
    complete_and_await();
    CHECK(runtime->error == "");
    CHECK(output == std::array<float, 4>{1, 2, 3, 4});
  }
}

TEST_CASE("the runtime writes the results that keep their shapes") {
  for (const hvd_op_kind kind : {HVD_ALLREDUCE, HVD_BROADCAST}) {
    start();
    std::array<float, 2> input{}, output{};
    CHECK(call_handler(kind, input.data(), output.data(), {2, 1}) == nullptr);
    complete_and_await();
    CHECK(runtime->error == "");
  }
}

TEST_CASE("another shape than that of the program is an error, which names both") {
  start();
  runtime->shape = {3, 1};
  runtime->output = {1, 2, 3};
  std::array<float, 2> input{};
  std::array<float, 4> output{};
  CHECK(call_handler(HVD_ALLGATHER, input.data(), output.data(), {4, 1}) == nullptr);
  complete_and_await();
  CHECK(runtime->error.find("the result has the shape (3, 1) and not (4, 1)") != std::string::npos);
  CHECK(output == std::array<float, 4>{});
}

TEST_CASE("a submission names its program, and how often it was compiled") {
  const auto submitted = [] {
    start();
    std::array<float, 2> input{}, output{};
    CHECK(call_handler(HVD_BROADCAST, input.data(), output.data(), {2, 1}) == nullptr);
    complete_and_await();
    return runtime->program;
  };
  CHECK(submitted() == "");
  horovod_jax_note_compilation("jit_step");
  CHECK(submitted() == "jit_step");
  horovod_jax_note_compilation("jit_step");
  CHECK(submitted() == "jit_step; this rank compiled the program again (compilation 2)");
}

TEST_CASE("a comparison gets the parameters before the reduction that the counter names") {
  start();
  std::array<int64_t, 2> counter{0, 3};
  std::array<float, 2> values{1, 2};
  const Compare compare = [](int64_t model, const Parameter* parameters, int64_t count, char* error,
                             int64_t) -> int32_t {
    const bool is_right = model == 7 && count == 1 && parameters[0].bytes == 8 &&
                          parameters[0].dtype == HVD_FLOAT32 &&
                          static_cast<const float*>(parameters[0].data)[1] == 2;
    std::strcpy(error, is_right ? "they differ" : "wrong parameters");
    return HVD_INVALID_ARGUMENT;
  };
  CHECK(call_comparison(7, values.data()) == nullptr);  // unknown model
  horovod_jax_count(7, counter.data(), compare);
  CHECK(call_comparison(7, values.data()) == nullptr);
  CHECK(call_comparison(7, values.data()) == nullptr);
  CHECK(runtime->error == "");
  CHECK(call_comparison(7, values.data()) != nullptr);
  CHECK(runtime->error == "Horovod: they differ");
  CHECK(call_comparison(7, values.data()) == nullptr);
  CHECK(counter[0] == 4);
}
