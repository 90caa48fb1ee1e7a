// The conformance suites for a backend in a shared object, HVD_BACKEND, with the built-in
// controller or that of another shared object, HVD_CONTROLLER. Each process is a rank. With
// HVD_BACKEND_DEVICE tensors lie in memory of that GPU that the host can access too.
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
#include "plugin/catalogue.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
}

namespace {

using hvd::test::OpCase;
using hvd::test::OpSet;
using hvd::test::Outcome;
using hvd::test::PluginRank;
using hvd::test::run_plugin_world;

constexpr unsigned kForAll = 1;  // flag of cudaMallocManaged: any stream may use the memory

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
  // Never unloaded: cases keep memory until the process ends, which the library frees.
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

// Unlike a lost peer, a silent peer closes no connection.
void check_silent_peer() {
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

// Adds a batch of each operation; a root is rank 1.
void add_batches_of_all_kinds(const OpSet& set, bool keeps_tensors,
                              std::vector<std::unique_ptr<OpCase>>* to) {
  constexpr int64_t kCount = 99'999;
  for (const int op :
       {HVD_BROADCAST, HVD_ALLREDUCE, HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    OpCase& work = *to->emplace_back(std::make_unique<OpCase>(op, HVD_INT32));
    work.batch.root = 1;
    work.keeps_tensors = keeps_tensors;
    const int64_t result = op == HVD_ALLGATHER       ? kCount * set.size()
                           : op == HVD_REDUCESCATTER ? kCount / set.size()
                                                     : kCount;
    hvd_batch_tensor& tensor = work.add(kCount, 1, result, [](size_t) { return 1.0; });
    const auto size = static_cast<size_t>(set.size());
    if (op == HVD_ALLGATHER) tensor.rank_rows = work.keep(std::vector<int64_t>(size, kCount));
    if (op != HVD_ALLTOALL) continue;
    tensor.rank_rows = tensor.from_rows =
        work.keep(std::vector<int64_t>(size, kCount / set.size()));
  }
}

// After an abort, memory belongs to the user again unless it is reported to be in use: the library must not write there
// for a rank that learns of the abort later, or for a later job of the process.
void check_memory_after_abort() {
  std::vector<std::vector<std::unique_ptr<OpCase>>> aborted(3);  // indexed by rank
  static std::vector<std::unique_ptr<OpCase>> in_use;            // kept until the process ends
  run_plugin_world(links(), {0, 0, 0}, [&](PluginRank& rank) {
    links().processes->aborted = true;
    OpSet set = OpSet::everyone(rank);
    OpCase first(HVD_ALLREDUCE, HVD_INT32);
    first.add(1, 1, 1, [](size_t) { return 1.0; });
    CHECK(set.run(first));
    auto& works = aborted[static_cast<size_t>(rank.rank())];
    add_batches_of_all_kinds(set, false, &works);
    add_batches_of_all_kinds(set, true, &works);
    const auto start_and_abort = [&] {
      std::vector<Outcome> outcomes(works.size());
      for (size_t i = 0; i < works.size(); ++i) {
        rank.start(works[i]->ready(set.next++), outcomes[i]);
      }
      rank.op().abort(rank.op_context(), "the job failed");
      for (size_t i = 0; i < works.size(); ++i) {
        CHECK(outcomes[i].done);
        CHECK(!(outcomes[i].in_use && !*works[i]->keeps_tensors));
        if (outcomes[i].in_use) {
          in_use.push_back(std::move(works[i]));
        } else {
          works[i]->overwrite();
        }
      }
      std::erase(works, nullptr);
      if (HVD_TEST_SANITIZED != 0) works.clear();  // AddressSanitizer sees each later access
    };
    // Rank 1 learns of the abort last, and sends the data that the other ranks wait for.
    if (rank.rank() == 1) {
      CHECK(rank.step_until([&] { return rank.messages.size() == 2; }) == HVD_OK);
    }
    start_and_abort();
    if (rank.rank() != 1) rank.send(1, "aborted");
  });
  run_plugin_world(links(), {0, 0, 0}, [](PluginRank& rank) {
    OpSet set = OpSet::everyone(rank);
    for (int i = 0; i < 20; ++i) {
      OpCase work(HVD_ALLREDUCE, HVD_INT32);
      work.add(100'000, 1, 100'000, [](size_t) { return 1.0; });
      CHECK(set.run(work));
      hvd::test::check_outcome(work, 0, [](size_t) { return 3.0; });
    }
  });
  run_plugin_world(links(), {0, 0, 0}, [&](PluginRank& rank) {
    for (const auto& work : aborted[static_cast<size_t>(rank.rank())]) {
      CHECK_MESSAGE(work->is_still_overwritten(), "operation ", work->batch.op);
    }
  });
  for (const auto& works : aborted) {
    for (const auto& work : works) CHECK(work->is_still_overwritten());
  }
}

}  // namespace

TEST_CASE("silent peer: an abort ends a call that waits for it") { check_silent_peer(); }
TEST_CASE("backend: after an abort the memory of batches is the user's") {
  check_memory_after_abort();
}
HVD_CONTROLLER_CONFORMANCE("controller", links())
HVD_OP_CONFORMANCE("backend", links())
