// The NCCL plugin in this process, with threads as ranks, over a double of NCCL and of the CUDA
// runtime (README.md). These tests do not cover the real libraries.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "base/machine_identity.h"
#include "base/shared_library.h"
#include "conformance/op_conformance.h"
#include "horovod/plugin_framework.h"
#include "ops/nccl/channel.h"
#include "plugin/catalogue.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
}

namespace {

using hvd::test::note_outcome;
using hvd::test::Outcome;

// Cases that wait for seconds. side_by_side.py runs them at the same time.
const doctest::test_suite kWaits("waits");

// Sets a variable while the object lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;

 private:
  const char* const name_;
};

const char* path_of_double() {
  const char* path = std::getenv("HVD_TEST_NCCL_DOUBLE");
  return path == nullptr ? HVD_NCCL_DOUBLE : path;
}

const char* path_of_plugin() {
  const char* path = std::getenv("HVD_TEST_NCCL_PLUGIN");
  return path == nullptr ? HVD_NCCL_PLUGIN : path;
}

// While it lives, no variable names a CUDA library, and this machine has no GPU: see find_gpu_driver.
class NoGpu {
 public:
  NoGpu() { ::unsetenv("HOROVOD_CUDA_LIBRARY"); }
  ~NoGpu() { ::setenv("HOROVOD_CUDA_LIBRARY", path_of_double(), 1); }
  NoGpu(const NoGpu&) = delete;
  static bool is_true() { return !std::filesystem::exists("/dev/nvidiactl"); }
};

template <typename Function>
Function* of_double(const char* name) {
  static const auto library = hvd::SharedLibrary::open(path_of_double());
  REQUIRE(library.ok());
  return reinterpret_cast<Function*>(library->symbol(name));
}

// Tensors lie in memory that the CPU may access while no operation refers to it.
void use_memory_of_double() {
  auto& memory = hvd::test::op_memory();
  memory.device = 0;
  memory.take = [](size_t size) {
    void* taken = nullptr;
    REQUIRE(of_double<int(int)>("cudaSetDevice")(hvd::test::own_device()) == 0);
    REQUIRE(of_double<int(void**, size_t, unsigned)>("cudaMallocManaged")(&taken, size, 1) == 0);
    return taken;
  };
  memory.give_back = [](void* taken) { of_double<int(void*)>("cudaFree")(taken); };
}

const hvd_plugin& plugin() {
  static const bool uses_memory = (use_memory_of_double(), true);
  static_cast<void>(uses_memory);
  static const bool kIsSet = ::setenv("HOROVOD_NCCL_LIBRARY", path_of_double(), 1) == 0 &&
                             ::setenv("HOROVOD_CUDA_LIBRARY", path_of_double(), 1) == 0;
  REQUIRE(kIsSet);
  const auto loaded = hvd::plugin::load(path_of_plugin());
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  return **loaded;
}

const hvd::test::PluginLinks& links() {
  static const hvd::test::PluginLinks kLinks{
      hvd_builtin_controller_tcp(), &plugin(), {}, {}, nullptr, false, true};
  return kLinks;
}

// One rank, driven by the test.
class Rank {
  hvd::test::PluginStore own_store_;  // declared before host, which may use the store

 public:
  using Settings = std::map<std::string, std::string>;
  explicit Rank(Settings settings = {}) : Rank(own_store_, 0, 1, std::move(settings)) {}
  // One of several ranks, which open at the same time.
  Rank(hvd::test::PluginStore& store, int32_t rank, int32_t size, Settings settings = {},
       int32_t host_number = 0, bool is_tried = false)
      : host(store, std::move(settings)) {
    hvd_plugin_config config{};
    config.struct_size = sizeof config;
    config.rank = config.local_rank = rank;
    config.size = config.local_size = size;
    config.cross_rank = host_number;
    config.is_tried = is_tried;
    opened = plugin().open(&host.vtable, &config, &context, error_, sizeof error_);
  }
  ~Rank() {
    if (context != nullptr) plugin().close(context);
  }
  Rank(const Rank&) = delete;
  const hvd_op_v1& op() const { return *static_cast<const hvd_op_v1*>(plugin().vtable); }
  std::string error() const { return error_; }

  void add_set(int32_t id, std::vector<int32_t> members = {0}) {
    CHECK(op().new_set(context, id, members.data(), static_cast<int32_t>(members.size())) ==
          HVD_OK);
  }
  void start(const hvd_batch& batch, Outcome& outcome) {
    CHECK(op().run(context, &batch, note_outcome, &outcome) == HVD_OK);
  }
  bool poll_once(const Outcome& outcome) {
    int32_t progressed = 0;
    op().poll(context, &progressed);
    if (!outcome.done) host.block(5);
    return outcome.done;
  }
  // The double answers in milliseconds; a minute means never.
  bool is_over(const Outcome& outcome, double seconds = 60) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!poll_once(outcome)) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

  hvd::test::PluginHost host;
  void* context = nullptr;
  int opened = -1;

 private:
  char error_[1024] = "";
};

Rank::Settings on_host(const std::string& name) {
  return {{"HOROVOD_HOSTNAME", name}, {"HOROVOD_START_TIMEOUT", "20"}};
}

// A file to which the double logs its calls.
class Log {
 public:
  Log()
      : path_(std::filesystem::temp_directory_path() / ("nccl-" + std::to_string(::getpid()))),
        variable_("HVD_DOUBLE_LOG", path_.string()) {
    std::filesystem::remove(path_);
  }
  ~Log() { std::filesystem::remove(path_); }
  int count(const std::string& start) const {
    std::ifstream file(path_);
    int found = 0;
    for (std::string line; std::getline(file, line);) found += line.starts_with(start) ? 1 : 0;
    return found;
  }

 private:
  const std::filesystem::path path_;
  const Variable variable_;
};

// Copies by a stream; a copy into host memory is complete at return.
void copy(void* to, const void* from, size_t size, void* stream) {
  CHECK(of_double<int(void*, const void*, size_t, int, void*)>("cudaMemcpyAsync")(to, from, size, 4,
                                                                                  stream) == 0);
}

struct SumOfFloats : hvd::test::OpCase {
  explicit SumOfFloats(int32_t set = 0) : OpCase(HVD_ALLREDUCE, HVD_FLOAT32, set) {
    batch.device = hvd::test::own_device();
  }
};

}  // namespace

HVD_OP_CONFORMANCE("nccl over the double", links())

TEST_CASE("a batch waits on the device for its event, and no thread waits with it") {
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  void *stream = nullptr, *event = nullptr;
  of_double<int(void**, unsigned, int)>("cudaStreamCreateWithPriority")(&stream, 1, 0);
  of_double<int(void**, unsigned)>("cudaEventCreateWithFlags")(&event, 2);
  std::atomic<bool> may_go{false};
  of_double<int(void*, void (*)(void*), void*)>("cudaLaunchHostFunc")(
      stream,
      [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
      },
      &may_go);
  SumOfFloats work;
  auto& tensor = work.add(1000, 1, 1000, [](size_t) { return 1.0; });
  const std::vector<float> late(1000, 7.0F);
  copy(const_cast<void*>(tensor.input), late.data(), late.size() * sizeof(float), stream);
  of_double<int(void*, void*)>("cudaEventRecord")(event, stream);
  hvd_batch batch = work.ready(0);
  batch.ready_events = &event;
  static std::vector<int64_t> times;
  times.clear();
  batch.ran = [](void*, int64_t began, int64_t ended) { times = {began, ended}; };
  Outcome outcome;
  rank.start(batch, outcome);
  for (int i = 0; i < 20; ++i) CHECK(!rank.poll_once(outcome));
  CHECK(times.empty());
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  const int64_t released = now();
  may_go.store(true);
  REQUIRE(rank.is_over(outcome));
  CHECK(outcome.status == HVD_OK);
  REQUIRE(times.size() == 2);
  // The device begins after the wait for the input. The event's time is a float in milliseconds.
  CHECK(times[0] > released - 1000);
  CHECK((times[0] < times[1] && times[1] <= now()));
  hvd::test::check_outcome(work, 0, [](size_t) { return 7.0; });
  of_double<int(void*)>("cudaEventDestroy")(event);
  of_double<int(void*)>("cudaStreamDestroy")(stream);
}

TEST_CASE("outputs that nobody knew the size of are the device's, and go back to it") {
  const Log log;
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  const auto* framework =
      static_cast<const hvd_framework*>(rank.host.published[HVD_FRAMEWORK_OF_DEVICES]);
  REQUIRE(framework != nullptr);
  const int64_t rows = 6;
  void* stream = nullptr;
  of_double<int(void**, unsigned, int)>("cudaStreamCreateWithPriority")(&stream, 1, 0);
  for (int round = 0; round < 2; ++round) {
    hvd::test::OpCase work(HVD_ALLGATHER, HVD_INT32);
    work.batch.device = 0;
    auto& tensor = work.add(12, 2, 0, [](size_t i) { return static_cast<double>(i); });
    tensor.output = nullptr;
    tensor.rank_rows = &rows;
    hvd_batch batch = work.ready(static_cast<uint64_t>(round));
    void* made = nullptr;
    batch.made_outputs = &made;
    Outcome outcome;
    rank.start(batch, outcome);
    REQUIRE(rank.is_over(outcome));
    REQUIRE(outcome.status == HVD_OK);
    REQUIRE(made != nullptr);
    std::vector<int32_t> received(12);
    copy(received.data(), made, received.size() * sizeof(int32_t), stream);
    CHECK(received[11] == 11);
    framework->vtable->release(framework->context, 0, made);
  }
  of_double<int(void*)>("cudaStreamDestroy")(stream);
  CHECK(log.count("malloc") == 2);
  CHECK(log.count("free") == 1);  // the second block is freed at the next batch
}

TEST_CASE("each process set has a communicator of its own, whatever the number of streams") {
  const Log log;
  {
    Rank rank(Rank::Settings{{"HOROVOD_NUM_NCCL_STREAMS", "3"}});
    REQUIRE(rank.opened == HVD_OK);
    for (const int32_t set : {0, 1}) {
      rank.add_set(set);
      for (uint64_t i = 0; i < 7; ++i) {
        SumOfFloats work(set);
        work.add(10, 1, 10, [&](size_t) { return static_cast<double>(i); });
        Outcome outcome;
        rank.start(work.ready(i), outcome);
        REQUIRE(rank.is_over(outcome));
        CHECK(outcome.status == HVD_OK);
        hvd::test::check_outcome(work, 0, [&](size_t) { return static_cast<double>(i); });
      }
    }
    CHECK(log.count("init") == 2);
    CHECK(rank.op().drop_set(rank.context, 1) == HVD_OK);
    SumOfFloats last;  // the plugin's thread drops the set before this sum
    last.add(10, 1, 10, [](size_t) { return 1.0; });
    Outcome outcome;
    rank.start(last.ready(7), outcome);
    REQUIRE(rank.is_over(outcome));
    // A separate thread closes the communicator.
    for (int i = 0; i < 20'000 && log.count("destroy") == 0; ++i) ::usleep(1'000);
    CHECK(log.count("destroy") == 1);
  }
  CHECK(log.count("destroy") == 2);
  CHECK(log.count("abort") == 0);
}

TEST_CASE("one thread of each rank calls NCCL, and starts batches of all sets in their order") {
  const Variable version("HVD_DOUBLE_VERSION", "22809");
  const Variable rules("HVD_DOUBLE_RULES", "one_launcher,launch_order");
  const std::vector<std::vector<int32_t>> sets{{0, 1, 2}, {0, 1}, {1, 2}};
  hvd::test::PluginStore store;
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      hvd::test::own_device() = i;
      Rank rank(store, i, 3);
      CHECK(rank.opened == HVD_OK);
      for (size_t s = 0; s < sets.size(); ++s) {
        if (std::ranges::find(sets[s], i) == sets[s].end()) continue;
        rank.add_set(static_cast<int32_t>(s), sets[s]);
      }
      for (uint64_t round = 0; round < 30; ++round) {
        std::deque<SumOfFloats> works;
        std::deque<Outcome> outcomes;
        for (size_t s = 0; s < sets.size(); ++s) {
          if (std::ranges::find(sets[s], i) == sets[s].end()) continue;
          SumOfFloats& work = works.emplace_back(static_cast<int32_t>(s));
          work.add(100, 1, 100, [](size_t) { return 1.0; });
          rank.start(work.ready(round), outcomes.emplace_back());
        }
        for (size_t w = 0; w < works.size(); ++w) {
          CHECK(rank.is_over(outcomes[w]));
          CHECK(outcomes[w].error == "");
          const size_t size = sets[static_cast<size_t>(works[w].batch.process_set)].size();
          hvd::test::check_outcome(works[w], 0, [&](size_t) { return static_cast<double>(size); });
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  char findings[4096] = "";
  const auto take = of_double<int(char*, size_t)>("hvd_double_take_findings");
  CHECK_MESSAGE(take(findings, sizeof findings) == 0, findings);
}

TEST_CASE("a set that is removed ends its communicator beside the batches of other sets") {
  const Variable waits("HVD_DOUBLE_DESTROY_WAITS", "1");
  const Log log;
  hvd::test::PluginStore store;
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      hvd::test::own_device() = i;
      Rank rank(store, i, 2);
      CHECK(rank.opened == HVD_OK);
      for (const int32_t set : {0, 1}) rank.add_set(set, {0, 1});
      const auto sum = [&](int32_t set, uint64_t sequence) {
        SumOfFloats work(set);
        work.add(10, 1, 10, [](size_t) { return 1.0; });
        Outcome outcome;
        rank.start(work.ready(sequence), outcome);
        CHECK(rank.is_over(outcome));
        CHECK(outcome.error == "");
      };
      sum(0, 0);
      sum(1, 0);
      // Rank 1 removes the set later.
      if (i == 0) CHECK(rank.op().drop_set(rank.context, 1) == HVD_OK);
      sum(0, 1);
      if (i == 1) CHECK(rank.op().drop_set(rank.context, 1) == HVD_OK);
      sum(0, 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(log.count("destroy") == 4);
  CHECK(log.count("abort") == 0);
}

namespace {

// Returns the size of the process's address space in bytes.
int64_t addresses_in_use() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("threads that end the communicators of removed sets leave no stacks") {
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  [[maybe_unused]] int64_t before = 0;  // unused under ThreadSanitizer
  for (int32_t set = 1; set <= 120; ++set) {
    rank.add_set(set);
    for (const int32_t on : {set, 0}) {
      SumOfFloats work(on);
      work.add(10, 1, 10, [](size_t) { return 1.0; });
      Outcome outcome;
      rank.start(work.ready(static_cast<uint64_t>(set)), outcome);
      REQUIRE(rank.is_over(outcome));
      if (on == set) CHECK(rank.op().drop_set(rank.context, set) == HVD_OK);
    }
    if (set == 60) before = addresses_in_use();
  }
#ifndef __SANITIZE_THREAD__  // ThreadSanitizer records calls of ended threads
  // A stack has 8 MiB.
  CHECK(addresses_in_use() - before < int64_t{200} << 20);
#endif
}

TEST_CASE("an error in a communicator is a sentence, and everything there is aborted" * kWaits) {
  const Log log;
  const Variable fails("HVD_DOUBLE_FAILS_AFTER", "2");
  Rank rank(on_host("a"));
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  for (uint64_t i = 0; i < 4; ++i) {
    SumOfFloats work;
    work.add(10, 1, 10, [](size_t) { return 1.0; });
    Outcome outcome;
    rank.start(work.ready(i), outcome);
    REQUIRE(rank.is_over(outcome));
    CHECK((outcome.status == HVD_OK) == (i < 2));
    if (i >= 2) CHECK(outcome.error.starts_with("host a, GPU 0: NCCL: "));
    if (i >= 2) CHECK(outcome.error.find("remote process exited") != std::string::npos);
  }
  CHECK(log.count("abort") == 1);
}

namespace {

// Batches of a rank; the first batch waits on the device until `may_go`.
class StuckDevice {
 public:
  // Streams use it until the process ends.
  static StuckDevice& make(Rank& rank, uint64_t batches = 2, bool is_reported = false) {
    static auto* const until_exit = new std::deque<StuckDevice>;
    return until_exit->emplace_back(rank, batches, is_reported);
  }
  // is_reported: the batches have hvd_batch.fails.
  StuckDevice(Rank& rank, uint64_t batches, bool is_reported) {
    rank.add_set(0);
    of_double<int(void**, unsigned, int)>("cudaStreamCreateWithPriority")(&stream_, 1, 0);
    of_double<int(void**, unsigned)>("cudaEventCreateWithFlags")(&event_, 2);
    of_double<int(void*, void (*)(void*), void*)>("cudaLaunchHostFunc")(
        stream_,
        [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
        },
        &may_go);
    of_double<int(void*, void*)>("cudaEventRecord")(event_, stream_);
    for (uint64_t i = 0; i < batches; ++i) {
      SumOfFloats& work = works_.emplace_back();
      work.keeps_tensors = true;
      work.add(10, 1, 10, [](size_t) { return 1.0; });
      batches_[i] = work.ready(i);
      if (i == 0) batches_[i].ready_events = &event_;
      if (is_reported) batches_[i].fails = &note_failure;
      rank.start(batches_[i], outcomes[i]);
    }
  }
  std::atomic<bool> may_go{false};
  std::array<Outcome, 2> outcomes;

 private:
  static void note_failure(void* argument, int status, const char* error) {
    auto* const outcome = static_cast<Outcome*>(argument);
    CHECK(!outcome->done);
    CHECK(outcome->error == "");  // no earlier error
    outcome->status = status;
    outcome->error = error;
  }
  void *stream_ = nullptr, *event_ = nullptr;
  std::deque<SumOfFloats> works_;
  std::array<hvd_batch, 2> batches_{};
};

}  // namespace

TEST_CASE("after an abort, a batch ends when its stream is idle" * kWaits) {
  const Variable fails("HVD_DOUBLE_FAILS_AFTER", "1");
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  StuckDevice& device = StuckDevice::make(rank);
  std::thread later([&] {
    std::this_thread::sleep_for(
        std::chrono::seconds(4));  // longer than a failure waits for its cause
    device.may_go.store(true);
  });
  while (!rank.poll_once(device.outcomes[0])) {
  }
  CHECK(device.may_go.load());
  CHECK(!device.outcomes[0].in_use);
  CHECK(device.outcomes[1].error.find("remote process exited") != std::string::npos);
  later.join();
}

TEST_CASE("an error of NCCL is reported before kernels are aborted" * kWaits) {
  const Log log;
  const Variable fails("HVD_DOUBLE_FAILS_AFTER", "1");
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  StuckDevice& device = StuckDevice::make(rank, 2, true);
  auto& [first, second] = device.outcomes;
  while (first.status < 0 && second.status < 0) rank.poll_once(first);
  const Outcome& reported = first.status < 0 ? second : first;
  CHECK(reported.error.find("remote process exited") != std::string::npos);
  for (int i = 0; i < 40; ++i) CHECK(!rank.poll_once(first));
  CHECK(!second.done);
  CHECK(log.count("abort") == 0);
  device.may_go.store(true);
  rank.op().abort(rank.context, "rank 0: the error");
  CHECK(first.done);
  CHECK(second.done);
  CHECK(!first.in_use);
  CHECK(log.count("abort") == 1);
}

TEST_CASE("a GPU that does not answer after an abort is a sentence after a while" * kWaits) {
  const Variable fails("HVD_DOUBLE_FAILS_AFTER", "1");
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  static std::atomic<int> sentences{0};
  rank.host.vtable.log = [](void*, int, const char* line) {
    sentences +=
        std::string(line) ==
        "GPU 0 does not answer: it still runs a batch 10 s after NCCL was aborted, and may "
        "write to the batch's tensors";
  };
  StuckDevice& device = StuckDevice::make(rank);
  REQUIRE(rank.is_over(device.outcomes[0]));
  for (const Outcome& outcome : device.outcomes) {
    CHECK(outcome.done);
    CHECK(outcome.in_use);
    CHECK(outcome.error.find("remote process exited") != std::string::npos);
  }
  CHECK(sentences == 1);
  device.may_go.store(true);
}

TEST_CASE("an abort ends the kernels of all communicators, whatever their order on the stream" *
          kWaits) {
  enum Way { kTwoSets, kFactor, kHosts };
  for (const Way way : {kTwoSets, kFactor, kHosts}) {
    CAPTURE(way);
    const int32_t size = way == kHosts ? 4 : 2;
    const std::vector<int32_t> members =
        way == kHosts ? std::vector{0, 1, 2, 3} : std::vector{0, 1};
    const Rank::Settings settings{{"HOROVOD_TORUS_ALLREDUCE", way == kHosts ? "1" : "0"}};
    const auto dtype = way == kFactor ? HVD_FLOAT16 : HVD_FLOAT32;
    const Log log;
    hvd::test::PluginStore store;
    std::atomic<int> warm{0};
    std::atomic<bool> is_over{false};
    Outcome last[2];
    const auto body = [&](int32_t i) {
      hvd::test::own_device() = i;
      Rank rank(store, i, size, settings, i / 2);
      REQUIRE(rank.opened == HVD_OK);
      std::deque<hvd::test::OpCase> works;
      const auto start = [&](int32_t set, uint64_t sequence, Outcome& outcome) {
        auto& work = works.emplace_back(HVD_ALLREDUCE, dtype, set);
        work.batch.device = i;
        work.batch.postscale = way == kFactor ? 0.25 : 1;
        work.keeps_tensors = true;
        work.add(10, 1, 10, [](size_t) { return 1.0; });
        rank.start(work.ready(sequence), outcome);
      };
      const std::vector<int32_t> sets = way == kTwoSets ? std::vector{0, 1} : std::vector{0};
      for (const int32_t set : sets) {
        rank.add_set(set, members);
        Outcome first;
        start(set, 0, first);
        REQUIRE(rank.is_over(first));
        CHECK(first.error == "");
      }
      ++warm;
      if (i == 0) {
        while (warm.load() < size) std::this_thread::yield();
        // Kernels of the newest set wait for the other ranks, and delay those of the first set.
        if (way == kTwoSets) start(1, 1, last[1]);
        start(0, 1, last[0]);
        for (int poll = 0; poll < 20; ++poll) CHECK(!rank.poll_once(last[0]));
        rank.op().abort(rank.context, "rank 0 had enough");
        REQUIRE(rank.is_over(last[0]));
        if (way == kTwoSets) REQUIRE(rank.is_over(last[1]));
        is_over.store(true);
      }
      while (!is_over.load()) std::this_thread::yield();
    };
    std::vector<std::thread> threads;
    for (int32_t i = 1; i < size; ++i) threads.emplace_back(body, i);
    body(0);
    for (std::thread& thread : threads) thread.join();
    hvd::test::own_device() = 0;
    CHECK(!last[0].in_use);
    CHECK(!last[1].in_use);
    CHECK(log.count("abort") == (way == kHosts ? 3 : 2));
  }
}

TEST_CASE("bytes that a broken communicator left in the outputs are no result" * kWaits) {
  hvd::test::PluginStore store;
  std::vector<std::unique_ptr<Rank>> ranks(2);
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 2; ++i) {
    threads.emplace_back(
        [&, i] { ranks[static_cast<size_t>(i)] = std::make_unique<Rank>(store, i, 2); });
  }
  for (std::thread& thread : threads) thread.join();
  std::deque<SumOfFloats> works;
  for (int i = 0; i < 3; ++i) works.emplace_back();
  std::vector<Outcome> outcomes(3);
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(ranks[i]->opened == HVD_OK);
    ranks[i]->add_set(0, {0, 1});
    hvd::test::own_device() = static_cast<int32_t>(i);
    works[i].add(10, 1, 10, [](size_t) { return 1.0; });
    works[i].batch.device = static_cast<int32_t>(i);
    ranks[i]->start(works[i].ready(0), outcomes[i]);
  }
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(ranks[i]->is_over(outcomes[i]));
    CHECK(outcomes[i].status == HVD_OK);
    hvd::test::check_outcome(works[i], 0, [](size_t) { return 2.0; });
  }
  hvd::test::own_device() = 0;
  works[2].add(10, 1, 10, [](size_t) { return 1.0; });
  ranks[0]->start(works[2].ready(1), outcomes[2]);
  // The batch is now on the stream and waits for rank 1.
  for (int i = 0; i < 20; ++i) CHECK(!ranks[0]->poll_once(outcomes[2]));
  ranks[1]->op().abort(ranks[1]->context, "rank 1 had enough");
  REQUIRE(ranks[0]->is_over(outcomes[2]));
  CHECK(outcomes[2].status != HVD_OK);
  CHECK(outcomes[2].error.find("remote process exited") != std::string::npos);
}

TEST_CASE("a batch under way does not spoil the capture of a graph") {
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  void *stream = nullptr, *graph = nullptr;
  REQUIRE(of_double<int(void**, unsigned, int)>("cudaStreamCreateWithPriority")(&stream, 1, 0) ==
          0);
  StuckDevice& device = StuckDevice::make(rank, 1);
  constexpr int kGlobal = 0;  // the mode that forbids calls of all threads
  REQUIRE(of_double<int(void*, int)>("cudaStreamBeginCapture")(stream, kGlobal) == 0);
  // Waits for longer than the thread's interval between error checks.
  CHECK(!rank.is_over(device.outcomes[0], 0.3));
  device.may_go.store(true);
  CHECK(rank.is_over(device.outcomes[0]));
  CHECK(device.outcomes[0].error == "");
  CHECK(of_double<int(void*, void**)>("cudaStreamEndCapture")(stream, &graph) == 0);
  of_double<int(void*)>("cudaStreamDestroy")(stream);
}

// Returns the sum, by two ranks, of two equal float16 numbers, with factors.
double sum_of_halves(int op, double value, double prescale, double postscale) {
  hvd::test::PluginStore store;
  std::vector<std::thread> threads;
  std::array<double, 2> results{};
  for (int32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      hvd::test::own_device() = i;
      Rank rank(store, i, 2);
      CHECK(rank.opened == HVD_OK);
      rank.add_set(0, {0, 1});
      hvd::test::OpCase work(op, HVD_FLOAT16);
      work.batch.prescale = prescale;
      work.batch.postscale = postscale;
      work.add(6, 2, op == HVD_ALLREDUCE ? 6 : i == 0 ? 4 : 2, [&](size_t) { return value; });
      CHECK(rank.op().supports(rank.context, &work.ready(0)) > 0);
      Outcome outcome;
      rank.start(work.ready(0), outcome);
      CHECK(rank.is_over(outcome));
      CHECK(outcome.error == "");
      for (const double one : work.outcome(0)) {
        results[static_cast<size_t>(i)] = one;
        CHECK(one == work.outcome(0).front());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(results[0] == results[1]);
  return results[0];
}

TEST_CASE("factors of float16 apply before and after the sum, and their product does not vanish") {
  for (const int op : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
    CAPTURE(op);
    CHECK(sum_of_halves(op, 0x1p15, 0x1p-12, 0x1p-13) == 0x1p-9);  // the product is 2^-25, or 0
    CHECK(sum_of_halves(op, 0x1p-24, 4, 0.125) == 0x1p-24);  // an input times the product vanishes
    CHECK(sum_of_halves(op, 0x1p14, 0x1p-20, 1) == 0x1p-5);
    CHECK(sum_of_halves(op, 0x1p-20, 1, 0x1p20) == 2);
    CHECK(sum_of_halves(op, -3, 0.5, -1) == 3);
    CHECK(sum_of_halves(op, 60000, 1, 0.5) == 60000);  // an average, divided before the sum
    CHECK(sum_of_halves(op, 0.5, 2, 0.5) == 1);
  }
}

TEST_CASE("factors of bfloat16 have more than its 8 bits") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> any(0.1, 10);
  struct Case {
    int32_t size;
    double prescale, postscale;
  };
  std::vector<Case> cases{
      {3, 1, 1.0 / 3}, {2, 1.0 / 7, 1}, {1, 1.0 / 3, 1.0 / 7}, {2, -1.0 / 3, 3}};
  for (int i = 0; i < 4; ++i) cases.push_back({2, any(random), any(random)});
  for (const Case& one : cases) {
    CAPTURE(one.size);
    CAPTURE(one.prescale);
    CAPTURE(one.postscale);
    constexpr size_t kCount = 4096;
    // Numbers that bfloat16 represents exactly.
    std::vector<double> values(kCount);
    for (double& value : values) value = std::ldexp(128 + static_cast<double>(random() % 128), -7);
    hvd::test::PluginStore store;
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < one.size; ++i) {
      threads.emplace_back([&, i] {
        hvd::test::own_device() = i;
        Rank rank(store, i, one.size);
        CHECK(rank.opened == HVD_OK);
        std::vector<int32_t> members(static_cast<size_t>(one.size));
        std::iota(members.begin(), members.end(), 0);
        rank.add_set(0, members);
        hvd::test::OpCase work(HVD_ALLREDUCE, HVD_BFLOAT16);
        work.batch.prescale = one.prescale;
        work.batch.postscale = one.postscale;
        work.batch.device = i;
        work.add(kCount, 1, kCount, [&](size_t at) { return values[at]; });
        Outcome outcome;
        rank.start(work.ready(0), outcome);
        CHECK(rank.is_over(outcome));
        CHECK(outcome.error == "");
        const auto got = work.outcome(0);
        double mean = 0;
        for (size_t at = 0; at < kCount; ++at) {
          const double right = values[at] * one.size * one.prescale * one.postscale;
          const double error = got[at] / right - 1;
          mean += error / kCount;
          CHECK(std::abs(error) < 0x1p-6);  // the result is rounded up to four times
        }
        CHECK(std::abs(mean) < 0x1p-11);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("members of a set go by hosts only where each has as many") {
  using hvd::ops::nccl::grid_of;
  const std::vector<int32_t> hosts{0, 0, 1, 1, 2};
  const auto grid = grid_of({0, 1, 2, 3}, 3, hosts);
  REQUIRE(grid.has_value());
  CHECK(grid->host == 1);
  CHECK(grid->hosts == 2);
  CHECK(grid->place == 1);
  CHECK(grid->places == 2);
  CHECK(!grid_of({0, 1, 2, 3, 4}, 0, hosts));
  CHECK(!grid_of({0, 1}, 0, hosts));
  CHECK(!grid_of({0, 2, 4}, 0, hosts));
}

TEST_CASE("an allreduce goes by hosts where it is asked to, and sums the same") {
  const Log log;
  for (const bool by_setting : {false, true}) {
    const Rank::Settings settings{{"HOROVOD_TORUS_ALLREDUCE", by_setting ? "1" : "0"}};
    hvd::test::PluginStore store;
    constexpr int32_t kRanks = 4;
    std::vector<std::unique_ptr<Rank>> ranks(kRanks);
    const auto on_all = [&](const std::function<void(size_t)>& body) {
      std::vector<std::thread> threads;
      for (size_t i = 0; i < kRanks; ++i) threads.emplace_back([&, i] { body(i); });
      for (std::thread& thread : threads) thread.join();
    };
    on_all([&](size_t i) {
      const auto rank = static_cast<int32_t>(i);
      ranks[i] = std::make_unique<Rank>(store, rank, kRanks, settings, rank / 2);
    });
    hvd_tuning tuning{};
    tuning.struct_size = sizeof tuning;
    tuning.drivers = by_setting ? 0 : 1;
    for (const auto& rank : ranks) REQUIRE(rank->opened == HVD_OK);
    on_all([&](size_t i) {
      ranks[i]->add_set(0, {0, 1, 2, 3});
      hvd::test::own_device() = static_cast<int32_t>(i);
      uint64_t sequence = 0;
      const auto runs = [&](hvd_dtype dtype, double prescale, double postscale, double right) {
        hvd::test::OpCase work(HVD_ALLREDUCE, dtype);
        work.batch.prescale = prescale;
        work.batch.postscale = postscale;
        // A tensor with a part per rank and a remainder, a smaller tensor, and an in-place tensor.
        for (const int64_t count : {1001, 1, 64}) {
          auto& tensor =
              work.add(count, 1, count, [&](size_t) { return static_cast<double>(i + 1); });
          if (count == 64) tensor.output = const_cast<void*>(tensor.input);
        }
        hvd_batch batch = work.ready(sequence++);
        batch.tuning = &tuning;
        Outcome outcome;
        ranks[i]->start(batch, outcome);
        CHECK(ranks[i]->is_over(outcome));
        CHECK(outcome.error == "");
        for (size_t t = 0; t < 3; ++t) {
          hvd::test::check_outcome(work, t, [&](size_t) { return right; });
        }
      };
      runs(HVD_FLOAT32, 1, 1, 10);
      runs(HVD_FLOAT32, 1, 0.25, 2.5);
      runs(HVD_FLOAT64, 0.5, 1, 5);
      runs(HVD_INT32, 1, 1, 10);
      runs(HVD_INT64, 1, 0.25, 2);  // rounded once, so not hierarchical
    });
  }
  CHECK(log.count("init 0 of 4") == 2);
  CHECK(log.count("init 0 of 2") == 8);
}

TEST_CASE(
    "questions whether a launch is through cost it at most a quarter, and are few for a late "
    "peer") {
  using std::chrono::microseconds;
  for (const int launch : {1, 50, 200, 600, 3000, 50'000}) {
    microseconds passed{0};
    int questions = 0;
    for (; passed.count() < launch; ++questions) {
      passed +=
          std::max(hvd::ops::nccl::pause_after(passed), microseconds(1));  // a query takes 1 us
    }
    CAPTURE(launch);
    CHECK(passed.count() <= launch + std::max(5, launch / 4));
    CHECK(questions <= 20 + 60 + launch / 1000);
  }
}

TEST_CASE("a member that never comes is a sentence after a while" * kWaits) {
  Rank rank(Rank::Settings{{"HOROVOD_START_TIMEOUT", "1"}});
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(1, {0, 1});
  SumOfFloats work(1);
  work.add(10, 1, 10, [](size_t) { return 1.0; });
  Outcome outcome;
  rank.start(work.ready(0), outcome);
  REQUIRE(rank.is_over(outcome));
  CHECK(outcome.status == HVD_DEADLINE_EXCEEDED);
  CHECK(outcome.error ==
        "NCCL: not all ranks of a process set have come within 1 s; "
        "HOROVOD_START_TIMEOUT may be raised");
}

TEST_CASE("a tensor on a device that is not there, or on a second one, is a sentence" * kWaits) {
  for (const auto& [second, words] :
       {std::pair{
            9,
            "host a, GPU 0: a tensor is on device 9, and this rank's others on device 0: a rank "
            "uses one GPU; start one rank for each"},
        std::pair{1,
                  "host a, GPU 0: a tensor is on device 1, and this rank's others on device 0"}}) {
    Rank rank(on_host("a"));
    REQUIRE(rank.opened == HVD_OK);
    rank.add_set(0);
    for (const int device : {0, second}) {
      SumOfFloats work;
      work.add(10, 1, 10, [](size_t) { return 1.0; });
      hvd_batch batch = work.ready(0);
      batch.device = device;
      Outcome outcome;
      rank.start(batch, outcome);
      REQUIRE(rank.is_over(outcome));
      CHECK((outcome.status == HVD_OK) == (device == 0));
      if (device != 0) CHECK(outcome.error.starts_with(words));
    }
  }
}

TEST_CASE("a tensor without rows names the device, and a rank that has joined may") {
  const int64_t no_rows = 0;
  hvd::test::OpCase empty(HVD_ALLGATHER, HVD_FLOAT32);
  auto& tensor = empty.add(0, 2, 0, [](size_t) { return 0.0; });
  tensor.input = tensor.output = nullptr;
  tensor.rank_rows = &no_rows;
  SumOfFloats joined;
  auto& nothing = joined.add(10, 1, 10, [](size_t) { return 0.0; });
  nothing.input = nothing.output = nullptr;
  hvd::test::own_device() = 1;
  for (hvd::test::OpCase* first : {&empty, static_cast<hvd::test::OpCase*>(&joined)}) {
    Rank rank;
    REQUIRE(rank.opened == HVD_OK);
    rank.add_set(0);
    SumOfFloats later;
    later.add(10, 1, 10, [](size_t) { return 1.0; });
    uint64_t sequence = 0;
    for (hvd::test::OpCase* work : {first, static_cast<hvd::test::OpCase*>(&later)}) {
      work->batch.device = 1;
      Outcome outcome;
      rank.start(work->ready(sequence++), outcome);
      REQUIRE(rank.is_over(outcome));
      CHECK(outcome.error == "");
    }
  }
  hvd::test::own_device() = 0;
  // Without devices, the ranks' numbers on the host decide.
  Rank rank;
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  uint64_t sequence = 0;
  SumOfFloats later;
  later.add(10, 1, 10, [](size_t) { return 1.0; });
  for (SumOfFloats* work : {&joined, &later}) {
    work->batch.device = sequence == 0 ? HVD_UNKNOWN_DEVICE : 0;
    Outcome outcome;
    rank.start(work->ready(sequence++), outcome);
    REQUIRE(rank.is_over(outcome));
    CHECK(outcome.error == "");
  }
}

TEST_CASE("ranks that have different versions of NCCL, or only some of them, do not begin") {
  const auto opened = [](const std::string& other) {
    hvd::test::PluginStore store;
    // The records that rank 1 stores in the first round.
    store.set("nccl-library#1", "+" + other);
    store.set("nccl-hosts#1", "+0");
    hvd::test::PluginHost host(store, {{"HOROVOD_START_TIMEOUT", "20"}});
    hvd_plugin_config config{};
    config.struct_size = sizeof config;
    config.size = 2;
    void* context = nullptr;
    char error[1024] = "";
    const int code = plugin().open(&host.vtable, &config, &context, error, sizeof error);
    if (context != nullptr) plugin().close(context);
    return std::pair<int, std::string>{code, error};
  };
  const auto starts = [](const std::pair<int, std::string>& with, const std::string& words) {
    CHECK_MESSAGE(with.second.starts_with(words), with.second);
    return with.first;
  };
  CHECK(opened("+NCCL 2.18.5").first == HVD_OK);
  CHECK(starts(opened("+NCCL 2.20.3"),
               "rank 0 has NCCL 2.18.5, and rank 1 has NCCL 2.20.3: all ranks "
               "need one version of NCCL; ") == HVD_UNAVAILABLE);
  CHECK(starts(opened("-no libnccl there"),
               "rank 0 has NCCL 2.18.5, and rank 1 has none: no libnccl there: ") ==
        HVD_UNAVAILABLE);
  CHECK(opened("0this machine has no GPU").first == HVD_OK);
  const Variable old("HVD_DOUBLE_VERSION", "2804");
  CHECK(starts(opened("+NCCL 2.20.3"), "rank 0 has none: ") == HVD_UNAVAILABLE);
  CHECK(opened("-no libnccl there").first == HVD_FAILED_PRECONDITION);
  CHECK(opened("0this machine has no GPU").first == HVD_FAILED_PRECONDITION);
  if (!NoGpu::is_true()) return;
  const NoGpu nowhere;
  CHECK(opened("+NCCL 2.20.3").first == HVD_OK);
  const auto without = opened("0this machine has no GPU");
  CHECK(without.first == HVD_FAILED_PRECONDITION);
  CHECK(without.second.find("this machine has no GPU") == 0);
}

namespace {

// The trial of a process set, as a batch.
struct TrialBatch {
  explicit TrialBatch(int32_t set = 0, int32_t device = hvd::test::own_device()) {
    tensor.input = tensor.output = text.data();
    tensor.count = static_cast<int64_t>(text.size());
    batch.struct_size = sizeof batch;
    batch.op = HVD_BROADCAST;
    batch.dtype = HVD_UINT8;
    batch.device = device;
    batch.process_set = set;
    batch.prescale = batch.postscale = 1;
    batch.tensor_count = 1;
    batch.tensors = &tensor;
    batch.is_trial = 1;
  }
  std::string of(Rank& rank) {
    Outcome outcome;
    rank.start(batch, outcome);
    REQUIRE(rank.is_over(outcome));
    CHECK(outcome.status == HVD_OK);
    return text.data();
  }
  std::array<char, 512> text{};
  hvd_batch_tensor tensor{};
  hvd_batch batch{};
};

// Returns the outcomes of a trial of ranks 0 and 1, each on its device.
std::array<std::string, 2> trial_of_two(std::array<int32_t, 2> devices,
                                        const Rank::Settings& settings = on_host("a")) {
  hvd::test::PluginStore store;
  std::array<std::string, 2> outcomes;
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const auto index = static_cast<size_t>(i);
      hvd::test::own_device() = devices[index];
      Rank rank(store, i, 2, settings, 0, true);
      CHECK_MESSAGE(rank.opened == HVD_OK, rank.error());
      rank.add_set(0, {0, 1});
      outcomes[index] = TrialBatch().of(rank);
      if (!outcomes[index].empty()) return;
      SumOfFloats work;
      work.add(10, 1, 10, [](size_t) { return 1.0; });
      Outcome outcome;
      rank.start(work.ready(1), outcome);
      CHECK(rank.is_over(outcome));
      CHECK(outcome.error == "");
      hvd::test::check_outcome(work, 0, [](size_t) { return 2.0; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Returns the record of a rank on host b.
std::string record_on_b(const std::string& library, const std::string& bus,
                        const std::string& apart = {}) {
  return "+" + library + "\nb\nboot\n" + apart + "\n00ff\n" + bus + "\n0";
}

// Returns the outcome of rank 0, on host a, if its peer has stored this record.
std::string trial_beside(const std::string& record, const Rank::Settings& settings = on_host("a")) {
  hvd::test::PluginStore store;
  store.set("nccl-library#1", "++");
  store.set("nccl-hosts#1", "+1");
  store.set("nccl/0/0.0.1/devices#1", record);
  Rank rank(store, 0, 2, settings, 0, true);
  REQUIRE_MESSAGE(rank.opened == HVD_OK, rank.error());
  rank.add_set(0, {0, 1});
  return TrialBatch().of(rank);
}

// Returns the outcome of a job's only rank.
std::string trial_alone() {
  hvd::test::PluginStore store;
  Rank rank(store, 0, 1, on_host("a"), 0, true);
  REQUIRE_MESSAGE(rank.opened == HVD_OK, rank.error());
  rank.add_set(0);
  return TrialBatch().of(rank);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a trial opens NCCL where each rank has a GPU of its own") {
  const Log log;
  CHECK(trial_of_two({0, 1}) == std::array<std::string, 2>{});
  CHECK(log.count("init 0 of 2") == 1);
}

TEST_CASE(
    "a trial of ranks with one GPU, or with two MIG instances of one, fails before NCCL starts") {
  const Log log;
  const std::string shared =
      "ranks 0 and 1 use one GPU, number 3 of host a, and NCCL needs one for each rank: start as "
      "many ranks on a host as it has GPUs, and let each choose its own, as by "
      "torch.cuda.set_device(hvd.local_rank())";
  CHECK(trial_of_two({3, 3}) == std::array{shared, shared});
  const Variable mig("HVD_DOUBLE_MIG", "2");
  const std::string instances =
      "ranks 0 and 1 use two MIG instances of one GPU, 0000:02:00.0 of host a, which NCCL does not "
      "connect: switch MIG off, or start one rank for each GPU";
  CHECK(trial_of_two({4, 5}) == std::array{instances, instances});
  // Without horovodrun, a host's name comes from the system.
  const std::string of_machine =
      "ranks 0 and 1 use two MIG instances of one GPU, 0000:02:00.0 of host " +
      hvd::own_host_name() + ", which ";
  for (const std::string& text : trial_of_two({4, 5}, {})) CHECK(text.starts_with(of_machine));
  CHECK(log.count("init") == 0);
  CHECK(trial_of_two({5, 6}) == std::array<std::string, 2>{});
  // NCCL takes these ranks for ranks on different hosts.
  const Variable apart("NCCL_HOSTID", "all");
  CHECK(trial_of_two({3, 3})[0] == shared);
}

TEST_CASE("a trial names the rank, its host and what it lacks") {
  const std::string version = record_on_b("NCCL 2.20.3", "0000:07:00.0");
  CHECK(trial_beside(version) ==
        "rank 0 on host a has NCCL 2.18.5, and rank 1 on host b has NCCL 2.20.3: all ranks need "
        "one version of NCCL; HOROVOD_NCCL_LIBRARY may name its library");
  CHECK(trial_beside("-b\nits GPU is away") == "rank 1 on host b: its GPU is away");
  CHECK(has(trial_beside("what"), "rank 1: its record of its GPU is malformed"));
  {
    const Variable none("HVD_DOUBLE_DEVICES", "0");
    const std::string text = trial_beside(version);
    CHECK(text.starts_with("rank 0 on host a: "));
    CHECK(has(text, " finds no GPU; nvidia-smi shows those of the host"));
  }
  {
    const Variable excluded("HVD_DOUBLE_EXCLUDED", "0");
    const std::string text = trial_beside(version);
    CHECK(text.starts_with("rank 0 on host a: "));
    CHECK(has(text,
              "SetDevice: CUDA-capable device(s) is/are busy or unavailable; another process "
              "may use the GPU in an exclusive compute mode: nvidia-smi -c 0"));
  }
  {
    const Variable old("HVD_DOUBLE_VERSION", "2804");
    CHECK(has(trial_beside(version), "is NCCL 2.8.4; 2.10 is the oldest that works"));
  }
  ::setenv("HOROVOD_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  CHECK(has(trial_beside(version), "/nowhere/libnccl.so.2"));
  ::setenv("HOROVOD_NCCL_LIBRARY", path_of_double(), 1);
  CHECK(trial_alone() == "");
}

TEST_CASE("a trial ends where a member does not come, and the rank goes on" * kWaits) {
  hvd::test::PluginStore store;
  store.set("nccl-library#1", "++");
  store.set("nccl-hosts#1", "+1");
  Rank rank(store, 0, 2, {{"HOROVOD_START_TIMEOUT", "1"}}, 0, true);
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0, {0, 1});
  rank.add_set(1, {0});
  CHECK(TrialBatch(0).of(rank) ==
        "NCCL: not all ranks of a process set have come within 1 s; HOROVOD_START_TIMEOUT may be "
        "raised");
  // The member joins the trial, but does not reach NCCL.
  store.set("nccl/2/0.0.1/devices#1", record_on_b("NCCL 2.18.5", "0000:07:00.0"));
  rank.add_set(2, {0, 1});
  CHECK(has(TrialBatch(2).of(rank), "not all ranks of a process set have come within 1 s"));
  CHECK(TrialBatch(1).of(rank) == "");
  SumOfFloats work(1);
  work.add(10, 1, 10, [](size_t) { return 1.0; });
  Outcome outcome;
  rank.start(work.ready(3), outcome);
  REQUIRE(rank.is_over(outcome));
  CHECK(outcome.error == "");
}

TEST_CASE("GPUs of two equal hosts have one PCI address, whoever started the ranks" * kWaits) {
  const std::string bus = "0000:00:00.0";
  // The records agree, but no member reaches NCCL.
  const std::string agreed = "not all ranks of a process set have come within 1 s";
  for (Rank::Settings settings : {Rank::Settings{}, on_host("a")}) {
    settings["HOROVOD_START_TIMEOUT"] = "1";
    CHECK(has(trial_beside(record_on_b("NCCL 2.18.5", bus), settings), agreed));
    const Variable apart("NCCL_HOSTID", "same");
    CHECK(has(trial_beside(record_on_b("NCCL 2.18.5", bus, "other"), settings), agreed));
    const std::string name = settings.contains("HOROVOD_HOSTNAME") ? "a" : hvd::own_host_name();
    CHECK(trial_beside(record_on_b("NCCL 2.18.5", bus, "same"), settings) ==
          "ranks 0 and 1 have GPUs with one PCI address, 0000:00:00.0, on two hosts, " + name +
              " and b, and NCCL_HOSTID is same on both, so that NCCL takes them for one GPU: unset "
              "it, or set it to a value of its own on each host");
  }
}

TEST_CASE("an NCCL whose start nobody can give up is not chosen by a trial") {
  const auto old = std::filesystem::path(path_of_double()).parent_path() / "libnccl_double_2.10.so";
  ::setenv("HOROVOD_NCCL_LIBRARY", old.c_str(), 1);
  const Variable version("HVD_DOUBLE_VERSION", "21003");
  CHECK(has(trial_alone(), " is NCCL 2.10.3, and NCCL is chosen by itself from 2.14 on"));
  ::setenv("HOROVOD_NCCL_LIBRARY", path_of_double(), 1);
}

namespace {

// An allgather of one rank with an output of the backend, while the GPU has little memory.
struct GatherInLittleMemory : hvd::test::OpCase {
  GatherInLittleMemory() : OpCase(HVD_ALLGATHER, HVD_INT32) {
    batch.device = 0;
    hvd_batch_tensor& tensor =
        add(rows, 1, 0, [](size_t i) { return static_cast<double>(i % 1000); });
    tensor.output = nullptr;
    tensor.rank_rows = &rows;
  }
  const int64_t rows = 1 << 20;
};

}  // namespace

TEST_CASE("an output for which the GPU has no memory goes through host memory") {
  Rank rank(on_host("a"));
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  const auto* framework =
      static_cast<const hvd_framework*>(rank.host.published[HVD_FRAMEWORK_OF_DEVICES]);
  static std::atomic<int> spills{0};
  rank.host.vtable.log = [](void*, int, const char* line) {
    spills += has(line, "GPU 0 has no room for an output of allgather, which goes through ");
  };
  const Log log;
  for (uint64_t round = 0; round < 3; ++round) {
    GatherInLittleMemory work;
    hvd_batch batch = work.ready(round);
    void* made = nullptr;
    batch.made_outputs = &made;
    Outcome outcome;
    {
      const Variable little("HVD_DOUBLE_MEMORY", "100000");
      rank.start(batch, outcome);
      REQUIRE(rank.is_over(outcome));
    }
    CHECK(outcome.error == "");
    REQUIRE(made != nullptr);
    CHECK(static_cast<const int32_t*>(made)[work.rows - 1] == (work.rows - 1) % 1000);  // pinned
    framework->vtable->release(framework->context, 0, made);
  }
  CHECK(log.count("pin") == 3);
  CHECK(log.count("unpin") == 2);  // the last buffer is unpinned at the next batch
  CHECK(spills == 1);
}

TEST_CASE("memory that the backend does not get is a sentence with GPU, host and remedy" * kWaits) {
  Rank rank(on_host("a"));
  REQUIRE(rank.opened == HVD_OK);
  rank.add_set(0);
  GatherInLittleMemory work;
  const Variable little("HVD_DOUBLE_MEMORY", "100000");
  const Variable no_pinned("HVD_DOUBLE_PINNED", "100000");
  hvd_batch batch = work.ready(0);
  void* made = nullptr;
  batch.made_outputs = &made;
  Outcome outcome;
  rank.start(batch, outcome);
  REQUIRE(rank.is_over(outcome));
  CHECK_MESSAGE(outcome.error.starts_with("host a, GPU 0: "), outcome.error);
  CHECK(
      has(outcome.error, "MallocAsync: out of memory; its memory is full: let the program leave"));
}

TEST_CASE("no function of CUDA runs before the first batch, so that a program may choose its GPU") {
  std::unique_ptr<Rank> rank;
  {
    const Variable none("HVD_DOUBLE_DEVICES", "0");
    rank = std::make_unique<Rank>();
  }
  REQUIRE_MESSAGE(rank->opened == HVD_OK, rank->error());
  rank->add_set(0);
  SumOfFloats work;
  work.add(10, 1, 10, [](size_t) { return 1.0; });
  Outcome outcome;
  rank->start(work.ready(0), outcome);
  REQUIRE(rank->is_over(outcome));
  CHECK(outcome.status == HVD_OK);
}

TEST_CASE("a rank without a GPU joins the others, and refuses a tensor of a GPU in one sentence") {
  if (!NoGpu::is_true()) return;
  hvd::test::PluginStore store;
  store.set("nccl-library#1", "++NCCL 2.18.5");
  store.set("nccl-hosts#1", "+0");
  std::unique_ptr<Rank> rank;
  {
    const NoGpu nowhere;
    rank = std::make_unique<Rank>(store, 0, 2);
  }
  REQUIRE_MESSAGE(rank->opened == HVD_OK, rank->error());
  rank->add_set(0, {0, 1});
  SumOfFloats work;
  work.add(10, 1, 10, [](size_t) { return 1.0; });
  CHECK(rank->op().supports(rank->context, &work.ready(0)) > 0);
  Outcome outcome;
  rank->start(work.ready(0), outcome);
  CHECK(outcome.status == HVD_FAILED_PRECONDITION);
  CHECK(outcome.error.starts_with(
      "a tensor of GPUs needs rank 0, and this machine has no GPU: there is neither "));
}

TEST_CASE("NCCL in the libtorch_cuda.so that the process has loaded is used") {
  plugin();
  const auto folder =
      std::filesystem::temp_directory_path() / ("torch-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(path_of_double(), folder / "libtorch_cuda.so");
  CHECK(hvd::SharedLibrary::open((folder / "libtorch_cuda.so").string()).ok());
  ::unsetenv("HOROVOD_NCCL_LIBRARY");
  {
    const Variable old("HVD_DOUBLE_VERSION", "2804");
    char why[512] = "";
    CHECK(plugin().probe(why, sizeof why) == 0);
    CHECK_MESSAGE(has(why, "/libtorch_cuda.so is NCCL 2.8.4"), why);
  }
  ::setenv("HOROVOD_NCCL_LIBRARY", path_of_double(), 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE(
    "an RCCL that the process has loaded is used, by the name that PyTorch's packages give it") {
  plugin();
  const auto folder =
      std::filesystem::temp_directory_path() / ("rccl-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto rccl = folder / "librccl.so";
  std::filesystem::copy_file(path_of_double(), rccl);
  CHECK(hvd::SharedLibrary::open(rccl.string()).ok());
  ::unsetenv("HOROVOD_NCCL_LIBRARY");
  char why[512] = "";
  CHECK(plugin().probe(why, sizeof why) == 0);
  CHECK(std::string(why) ==
        std::string(path_of_double()) + " has no function hipGetDeviceCount: it is too old");
  ::setenv("HOROVOD_NCCL_LIBRARY", path_of_double(), 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("probe says what is missing") {
  char why[512] = "";
  CHECK(plugin().probe(why, sizeof why) == 1);
  {
    const Variable old("HVD_DOUBLE_VERSION", "2804");
    CHECK(plugin().probe(why, sizeof why) == 0);
    CHECK(std::string(why).find("is NCCL 2.8.4; 2.10 is the oldest") != std::string::npos);
  }
  ::setenv("HOROVOD_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const auto loaded = hvd::plugin::load(path_of_plugin());
  REQUIRE(loaded.ok());
  CHECK((*loaded)->probe(why, sizeof why) == 0);
  CHECK(std::string(why).find("/nowhere/libnccl.so.2") != std::string::npos);
  ::setenv("HOROVOD_NCCL_LIBRARY", path_of_double(), 1);
  if (!NoGpu::is_true()) return;
  const NoGpu nowhere;
  CHECK(plugin().probe(why, sizeof why) == 0);
  CHECK(std::string(why).starts_with("this machine has no GPU"));
}
