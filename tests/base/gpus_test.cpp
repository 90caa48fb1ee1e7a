#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/cores.h"

namespace hvd {
namespace {

struct MachineRoot {
  MachineRoot() {
    char name[] = "/tmp/gpus-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~MachineRoot() { std::filesystem::remove_all(path); }
  void file(const std::string& name, const std::string& text = "") const {
    std::filesystem::create_directories(std::filesystem::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  }
  std::string path;
};

}  // namespace

TEST_CASE("GPUs are counted by the devices of their drivers") {
  const MachineRoot root;
  CHECK(count_gpus(root.path) == 0);
  for (const char* node : {"0", "1", "2"}) {
    root.file(std::string("sys/class/kfd/kfd/topology/nodes/") + node + "/gpu_id",
              node == std::string("0") ? "0\n" : "51234\n");
  }
  CHECK(count_gpus(root.path) == 2);
  for (const char* name :
       {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"}) {
    root.file(std::string("dev/") + name);
  }
  CHECK(count_gpus(root.path) == 3);
}

TEST_CASE("a list of visible devices limits the GPUs") {
  CHECK(visible_gpus(4, {}) == 4);
  CHECK(visible_gpus(4, "0,2") == 2);
  CHECK(visible_gpus(4, "") == 0);
  CHECK(visible_gpus(4, "-1") == 0);
  CHECK(visible_gpus(4, "0,9,1") == 1);
  CHECK(visible_gpus(4, "GPU-1f3e, MIG-77") == 2);
  CHECK(visible_gpus(0, "0,1") == 0);
}

TEST_CASE("a host has a rank for each GPU, or for each core") {
  CHECK(ranks_for("gpu", 4, 16) == 4);
  CHECK(ranks_for("auto", 4, 16) == 4);
  CHECK(ranks_for("cpu", 4, 16) == 16);
  CHECK(ranks_for("gpu", 0, 2.5) == 2);
  CHECK(ranks_for("auto", 0, 0.5) == 1);
}

}  // namespace hvd
