// A rank whose step is a sleep and two allreduces, and takes little processor time: many fit a few processors.
//
//   horovodrun -np N late_worker STEPS SECONDS RANK SHARE
#include <horovod/horovod.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

char error[1024];

void check(int status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "%s\n", error);
  std::exit(1);
}

void sleep_for(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  ::nanosleep(&time, nullptr);
}

void allreduce(const char* name) {
  float data[64] = {};
  const int64_t shape = 64;
  hvd_tensor tensor{};
  tensor.dtype = HVD_FLOAT32;
  tensor.ndim = 1;
  tensor.shape = &shape;
  tensor.input = tensor.output = data;
  hvd_submission submission{};
  submission.struct_size = sizeof(submission);
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = name;
  submission.device = HVD_CPU;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  hvd_handle handle = 0;
  check(hvd_submit(&submission, &handle, error, sizeof error));
  check(hvd_wait(handle, -1, error, sizeof error));
  check(hvd_release(handle, error, sizeof error));
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: late_worker STEPS SECONDS RANK SHARE\n");
    return 2;
  }
  const int steps = std::atoi(words[1]);
  const double seconds = std::atof(words[2]);
  check(hvd_init(nullptr, error, sizeof error));
  const double mine = seconds * (hvd_rank() == std::atoi(words[3]) ? 1 + std::atof(words[4]) : 1);
  for (int step = 0; step < steps; ++step) {
    sleep_for(mine);
    allreduce("layer1.bias");
    allreduce("layer4.weight");
  }
  check(hvd_shutdown(error, sizeof error));
}
