#include "launcher/agent/ranks/gpu_use.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("the memory of processes on GPUs is summed, and the busiest GPU of theirs counts") {
  const GpuUse use = parse_gpu_use(
      "GPU-a, 97\nGPU-b, 12\nGPU-c, [N/A]\nGPU-d, 100\n"
      "GPU-a, 41, 1024\nGPU-b, 42, 2\nGPU-b, 41, 512\nGPU-d, 7, 9\nGPU-c, 43, [N/A]\n");
  CHECK(use.bytes_of({41, 42}) == uint64_t{1538} << 20);
  CHECK(use.percent_of({41, 42}) == 97);
  CHECK(use.percent_of({42}) == 12);
  CHECK(use.bytes_of({43}) == 0);
  CHECK(use.percent_of({43}) == -1);
  CHECK(use.percent_of({99}) == -1);
}

TEST_CASE("text that is not of nvidia-smi says nothing") {
  for (const char* text : {"", "\n,,\n", "a, b, c", "a, -1, 5\na, 99999999999, 5", "GPU-a, 101",
                           "No devices were found", ",1,99999999999999999999"}) {
    const GpuUse use = parse_gpu_use(text);
    CHECK(use.percents.empty());
    CHECK(use.bytes_of({1, -1, 0}) == 0);
  }
}

}  // namespace hvd::launcher
