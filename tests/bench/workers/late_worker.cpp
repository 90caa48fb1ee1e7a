// A rank whose step is a sleep and two allreduces. It takes little processor time, so that many
// ranks fit on a few processors.
//   horovodrun -np N late_worker STEPS SECONDS RANK SHARE
#include <horovod/horovod.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "calls.h"

namespace {

void sleep_for(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  ::nanosleep(&time, nullptr);
}

void allreduce(const char* name) {
  float data[64] = {};
  bench::finish(bench::submit(name, data, 64));
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: late_worker STEPS SECONDS RANK SHARE\n");
    return 2;
  }
  const int steps = std::atoi(words[1]);
  const double seconds = std::atof(words[2]);
  bench::check(hvd_init(nullptr, bench::error, sizeof bench::error));
  const double mine = seconds * (hvd_rank() == std::atoi(words[3]) ? 1 + std::atof(words[4]) : 1);
  for (int step = 0; step < steps; ++step) {
    sleep_for(mine);
    allreduce("layer1.bias");
    allreduce("layer4.weight");
  }
  bench::check(hvd_shutdown(bench::error, sizeof bench::error));
}
