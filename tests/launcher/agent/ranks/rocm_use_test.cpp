#include <doctest/doctest.h>

#include <string>

#include "launcher/agent/ranks/gpu_use.h"

namespace hvd::launcher {

// Output in the format of rocm-smi 5.2.3 of Debian 12.
constexpr char kThreeGpus[] =
    "\n\n"
    "======================= ROCm System Management Interface =======================\n"
    "============================== % time GPU is busy ==============================\n"
    "GPU[0]\t\t: GPU use (%): 97\n"
    "GPU[0]\t\t: GFX Activity: 123456789\n"
    "GPU[1]\t\t: GPU use (%): 3\n"
    "GPU[1]\t\t: GFX Activity: N/A\n"
    "GPU[2]\t\t: GPU use Unsupported\n"
    "GPU[2]\t\t: GFX Activity: N/A\n"
    "================================================================================\n"
    "================================ KFD Processes =================================\n"
    "KFD process information:\n"
    "PID \tPROCESS NAME      \tGPU(s) \tVRAM USED \tSDMA USED\tCU OCCUPANCY\t\n"
    "4242\ta b\\tc            \t2      \t3221225472\t0        \t12          \t\n"
    "4243\tb\"\\xc3\\xbcber'x\\n\"\t1      \t536870912 \t0        \t0           \t\n"
    "4244\tpython3           \t1      \tUNKNOWN   \tUNKNOWN  \tUNKNOWN     \t\n"
    "77  \tUNKNOWN           \tUNKNOWN\t0         \t0        \t0           \t\n"
    "================================================================================\n"
    "============================= GPUs Indexed by PID ==============================\n"
    "PID 4242 is using 2 DRM device(s):\n"
    "1 0 \n"
    "PID 4243 is using 1 DRM device(s):\n"
    "2 \n"
    "PID 4244 is using 1 DRM device(s):\n"
    "1 \n"
    "None Unable to get list of KFD PIDs. A kernel update may be needed None\n"
    "None\n"
    "================================================================================\n"
    "============================= End of ROCm SMI Log ==============================\n";

TEST_CASE("the memory of a process is that on all its AMD GPUs, and the busiest of them counts") {
  const auto use = parse_rocm_use(kThreeGpus);
  REQUIRE(use);
  CHECK(use->bytes_of({4242}) == uint64_t{3} << 30);
  CHECK(use->bytes_of({4242, 4243}) == uint64_t{3584} << 20);
  CHECK(use->percent_of({4242}) == 97);
  CHECK(use->percent_of({4243}) == -1);  // the process's GPU does not report the value
  CHECK(use->bytes_of({4244}) == 0);
  CHECK(use->percent_of({4244}) == 3);
  CHECK(use->bytes_of({77}) == 0);
  CHECK(use->percent_of({77, 99}) == -1);
}

TEST_CASE("the GPUs of a process may be on several lines of rocm-smi") {
  const auto use = parse_rocm_use(
      "GPU[17]\t\t: GPU use (%): 1\nGPU[18]\t\t: GPU use (%): 50\nGPU[63]\t\t: GPU use (%): 100\n"
      "PID 5 is using 20 DRM device(s):\n0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 \n18 \n"
      "PID 6 is using 1 DRM device(s):\n63 \n");
  REQUIRE(use);
  CHECK(use->percent_of({5}) == 50);
  CHECK(use->percent_of({6}) == 100);
}

TEST_CASE("a host without processes on its AMD GPUs is known, one without GPUs is not") {
  const char* none =
      "KFD Processes\nNo KFD PIDs currently running\nGPUs Indexed by PID\n"
      "No KFD PIDs currently running\n";
  const auto idle = parse_rocm_use(std::string("GPU[0]\t\t: GPU use Unsupported\n") + none);
  REQUIRE(idle);
  CHECK(idle->percents.empty());
  CHECK(idle->processes.empty());
  CHECK(!parse_rocm_use(none));
  CHECK(!parse_rocm_use(""));
  CHECK(!parse_rocm_use("Unable to find librocm_smi64.so\n"));
}

TEST_CASE("text that is not of rocm-smi says nothing of processes") {
  const std::string head = "PID\tVRAM USED\n";
  for (const std::string& text :
       {std::string("4242\tpython3\t1\t5\t\n"), head + "-1\t5\n0\t5\n99999999999\t5\nx\t5\n",
        head + "41\n41\t-5\n41\t99999999999999999999\n41\t9007199254740992\n",
        head + "PID\tx\n41\t5\n",
        std::string("0 1\nPID -1 is using\n0\nPID 41 is using\n-1\nx\n")}) {
    const auto use =
        parse_rocm_use("GPU[\nGPU[]\nGPU[-1]: GPU use (%): 5\nGPU[0]: GPU use (%): 101\n" + text);
    REQUIRE(use);
    CHECK(use->percents.empty());
    CHECK_MESSAGE(use->processes.empty(), text);
  }
}

TEST_CASE("output of rocm-smi is read up to a bound") {
  std::string text = "GPU[0]\t\t: GPU use (%): 5\nPID 41 is using 1 DRM device(s):\n";
  for (int gpu = 0; gpu < 5000; ++gpu) text += "0 ";
  const auto use = parse_rocm_use(text);
  REQUIRE(use);
  CHECK(use->processes.size() == 4096);
  CHECK(!parse_rocm_use(std::string(5000, '\n') + text));
}

TEST_CASE("the path of rocm-smi may need quotes") {
  CHECK(rocm_use_command("/a b/rocm-smi") ==
        "unset PYTHONPATH PYTHONHOME PYTHONSTARTUP; PYTHONNOUSERSITE=1 exec '/a b/rocm-smi' "
        "--showuse --showpids --showpidgpus");
}

}  // namespace hvd::launcher
