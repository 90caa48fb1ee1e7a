// The conformance suites for a backend in a shared object, HVD_BACKEND, with the built-in controller or
// that of another shared object, HVD_CONTROLLER, where each process is a rank. With HVD_BACKEND_DEVICE
// tensors lie in memory of that GPU which the host can read and write too.
// tests/e2e/backends_test.py starts the processes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/shared_library.h"
#include "conformance/controller_conformance.h"
#include "conformance/op_conformance.h"
#include "plugin/library.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
}

namespace {

constexpr unsigned kForAll = 1;  // of cudaMallocManaged: any stream may use it

const hvd_plugin* file_of(const char* variable) {
  const char* path = std::getenv(variable);
  REQUIRE(path != nullptr);
  const auto loaded = hvd::plugin::load(path);
  CHECK_MESSAGE(loaded.ok(), loaded.status().message());
  REQUIRE(loaded.ok());
  return loaded.value();
}

const hvd_plugin* controller() {
  return std::getenv("HVD_CONTROLLER") == nullptr ? hvd_builtin_controller_tcp()
                                                  : file_of("HVD_CONTROLLER");
}

template <typename Function>
Function* of_runtime(const char* name) {
  const char* path = std::getenv("HOROVOD_CUDA_LIBRARY");
  REQUIRE(path != nullptr);
  // For as long as the process: what cases keep until its end is given back by it.
  static const auto& library = *new auto(hvd::SharedLibrary::open(path));
  REQUIRE_MESSAGE(library.ok(), library.status().message());
  void* function = library->symbol(name);
  REQUIRE_MESSAGE(function != nullptr, name);
  return reinterpret_cast<Function*>(function);
}

void use_device() {
  const char* device = std::getenv("HVD_BACKEND_DEVICE");
  if (device == nullptr) return;
  auto& memory = hvd::test::op_memory();
  memory.device = std::atoi(device);
  memory.take = [number = memory.device, choose = of_runtime<int(int)>("cudaSetDevice"),
                 take =
                     of_runtime<int(void**, size_t, unsigned)>("cudaMallocManaged")](size_t size) {
    void* taken = nullptr;
    REQUIRE(choose(number) == 0);
    REQUIRE(take(&taken, size + 1, kForAll) == 0);
    return taken;
  };
  memory.give_back = [free = of_runtime<int(void*)>("cudaFree")](void* taken) { free(taken); };
}

const hvd::test::PluginLinks& links() {
  static hvd::test::ProcessWorld processes;
  static const hvd::test::PluginLinks kLinks{
      controller(), file_of("HVD_BACKEND"),
      {},           {},
      &processes,   std::getenv("HVD_BACKEND_ENDS") != nullptr};
  if (processes.worlds == 0) {
    use_device();
    // A library may start only in all processes together.
    hvd::test::run_plugin_world(kLinks, std::vector<int32_t>(static_cast<size_t>(processes.size)),
                                [](hvd::test::PluginRank&) {});
  }
  return kLinks;
}

// Other than a peer that is gone, it closes no connection.
void check_silent_peer() {
  using hvd::test::OpCase;
  hvd::test::run_plugin_world(links(), {0, 0}, [](hvd::test::PluginRank& rank) {
    const hvd::test::SharedFolder& folder = *rank.store().folder;
    hvd::test::OpSet set = hvd::test::OpSet::everyone(rank);
    OpCase first(HVD_ALLREDUCE, HVD_INT32);
    const auto kept = std::make_shared<OpCase>(HVD_ALLREDUCE, HVD_INT32);
    rank.kept = kept;
    first.add(1, 1, 1, [](size_t) { return 1.0; });
    kept->add(100'000, 1, 100'000, [](size_t) { return 1.0; });
    CHECK(set.run(first));
    rank.meet(1);
    if (rank.rank() == 1) {
      folder.set("pid", std::to_string(::getpid()));
      ::raise(SIGSTOP);
      rank.op().abort(rank.op_context(), "rank 0 had enough");
      return;
    }
    const pid_t other = std::stoi(folder.get("pid", 60).value_or("0"));
    REQUIRE(other > 0);
    for (std::string state; state != "T";) {
      std::ifstream stat("/proc/" + std::to_string(other) + "/stat");
      stat >> state >> state >> state;
    }
    hvd::test::Outcome outcome;
    rank.start(kept->ready(set.next++), outcome);
    rank.drive(500);  // a call that waits has no event
    rank.op().abort(rank.op_context(), "rank 0 had enough");
    CHECK(rank.step_until([&] { return outcome.done; }) == HVD_OK);
    CHECK(outcome.status == HVD_ABORTED);
    ::kill(other, SIGCONT);
  });
}

}  // namespace

TEST_CASE("silent peer: an abort ends a call that waits for it") { check_silent_peer(); }
HVD_CONTROLLER_CONFORMANCE("controller", links())
HVD_OP_CONFORMANCE("backend", links())
