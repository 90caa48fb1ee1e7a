// A rank of this project, through the C ABI.
//
//   horovodrun -np N horovod_worker SOCKET
#include <horovod/horovod.h>

#include "calls.h"
#include "worker.h"

namespace {

using bench::check;
using bench::error;
using bench::finish;
using bench::submit;

void allreduce(float* data, size_t count) { finish(submit("bench", data, count)); }

// allreduce BYTES ITERATIONS [registered]: in private memory, or in memory of hvd_alloc, from which
// the other ranks of the host reduce.
std::vector<double> time_one(const bench::Words& words) {
  const size_t bytes = std::stoull(words.at(0));
  const int iterations = std::stoi(words.at(1));
  if (words.size() == 2) {
    std::vector<float> data(bytes / sizeof(float));
    return {bench::time_allreduce(data.data(), bytes, iterations, hvd_size(), allreduce)};
  }
  void* buffer = nullptr;
  check(hvd_alloc(bytes, &buffer, error, sizeof(error)));
  const double us =
      bench::time_allreduce(static_cast<float*>(buffer), bytes, iterations, hvd_size(), allreduce);
  check(hvd_free(buffer, error, sizeof(error)));
  return {us};
}

// names COUNT BYTES ITERATIONS: submits all, then waits for all; also times one submit alone.
std::vector<double> time_names(const bench::Words& words) {
  const size_t names = std::stoull(words.at(0));
  const size_t count = std::stoull(words.at(1)) / sizeof(float);
  std::vector<std::vector<float>> data(names, std::vector<float>(count));
  std::vector<std::string> called;
  for (size_t i = 0; i < names; ++i) called.push_back("bench.layer." + std::to_string(i));
  std::vector<hvd_handle> handles(names);
  std::vector<double> submits;
  const double all = bench::median_us(std::stoi(words.at(2)), [&] {
    const double start = bench::now_us();
    for (size_t i = 0; i < names; ++i)
      handles[i] = submit(called[i].c_str(), data[i].data(), count);
    submits.push_back((bench::now_us() - start) / static_cast<double>(names));
    for (hvd_handle handle : handles) finish(handle);
  });
  return {all, bench::median(submits)};
}

// average DTYPE BYTES ITERATIONS: of float32 or bfloat16, in alternation with HVD_AVERAGE, which
// divides; with the inverse of the number of ranks as postscale; and as a plain sum.
std::vector<double> time_average(const bench::Words& words) {
  const bool is_wide = words.at(0) == "float32";
  const size_t bytes = std::stoull(words.at(1));
  const int iterations = std::stoi(words.at(2));
  std::vector<char> data(bytes);
  const int64_t shape = static_cast<int64_t>(bytes / (is_wide ? 4 : 2));
  hvd_tensor tensor{};
  tensor.dtype = is_wide ? HVD_FLOAT32 : HVD_BFLOAT16;
  tensor.ndim = 1;
  tensor.shape = &shape;
  tensor.input = tensor.output = data.data();
  std::vector<std::vector<double>> times(3);
  for (int i = 0; i < iterations + 3; ++i) {
    for (size_t form = 0; form < times.size(); ++form) {
      hvd_submission submission{};
      submission.struct_size = sizeof(submission);
      submission.op = HVD_ALLREDUCE;
      submission.reduce_op = form == 0 ? HVD_AVERAGE : HVD_SUM;
      submission.postscale = form == 1 ? 1.0 / hvd_size() : 1.0;
      submission.name = form == 0 ? "divide" : form == 1 ? "multiply" : "sum";
      submission.device = HVD_CPU;
      submission.flags = HVD_KEEPS_TENSORS;
      submission.tensor_count = 1;
      submission.tensors = &tensor;
      hvd_handle handle = 0;
      const double start = bench::now_us();
      check(hvd_submit(&submission, &handle, error, sizeof(error)));
      finish(handle);
      if (i >= 3) times[form].push_back(bench::now_us() - start);
    }
  }
  std::vector<double> medians;
  for (auto& form : times) medians.push_back(bench::median(std::move(form)));
  return medians;
}

hvd_handle start_message(int (*function)(const hvd_message*, hvd_handle*, char*, size_t),
                         std::vector<char>& data) {
  hvd_message message{};
  message.struct_size = sizeof(message);
  message.rank = 1 - hvd_rank();
  message.dtype = HVD_UINT8;
  message.count = static_cast<int64_t>(data.size());
  message.data = data.data();
  hvd_handle handle = 0;
  check(function(&message, &handle, error, sizeof(error)));
  return handle;
}

// message BYTES ITERATIONS: one way between two ranks, half of a ping-pong; and a memcpy of these
// bytes on rank 0.
std::vector<double> time_message(const bench::Words& words) {
  const size_t bytes = std::stoull(words.at(0));
  const int iterations = std::stoi(words.at(1));
  std::vector<char> out(bytes, 1), in(bytes);
  const double both = bench::median_us(iterations, [&] {
    const hvd_handle received = start_message(hvd_recv, in);
    if (hvd_rank() == 1) finish(received);
    finish(start_message(hvd_send, out));
    if (hvd_rank() == 0) finish(received);
  });
  double copy = 0;
  if (hvd_rank() == 0) {
    copy = bench::median_us(iterations, [&] {
      std::memcpy(in.data(), out.data(), bytes);
      asm volatile("" : : "r"(in.data()) : "memory");
    });
  }
  return {both / 2, copy};
}

// restart ITERATIONS: shutdown and init.
std::vector<double> time_restart(const bench::Words& words) {
  return {bench::median_us(std::stoi(words.at(0)), [] {
    check(hvd_shutdown(error, sizeof(error)));
    check(hvd_init(nullptr, error, sizeof(error)));
  })};
}

}  // namespace

int main(int, char** argv) {
  if (hvd_init(nullptr, error, sizeof(error)) != HVD_OK) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }
  bench::serve(argv[1], hvd_rank(),
               {{"allreduce", time_one},
                {"average", time_average},
                {"message", time_message},
                {"names", time_names},
                {"restart", time_restart}});
  hvd_shutdown(nullptr, 0);
  return 0;
}
