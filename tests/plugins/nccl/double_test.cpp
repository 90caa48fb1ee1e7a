// The rules of the double: each rule finds its mistake, and accepts the similar correct program.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/shared_library.h"
#include "ops/nccl/abi.h"

namespace {

namespace abi = hvd::ops::nccl::abi;

constexpr unsigned kDisableTiming = 2;  // cudaEventDisableTiming

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

template <typename Function>
Function* of_double(const char* name) {
  static const auto library = hvd::SharedLibrary::open(HVD_NCCL_DOUBLE);
  REQUIRE(library.ok());
  void* function = library->symbol(name);
  REQUIRE_MESSAGE(function != nullptr, name);
  return reinterpret_cast<Function*>(function);
}
#define HVD_NCCL(name) of_double<abi::name>("nccl" #name)
#define HVD_CUDA(name) of_double<abi::name>("cuda" #name)

// Returns the findings so far and clears them.
std::string take_findings() {
  std::string text(1 << 20, '\0');
  of_double<int(char*, size_t)>("hvd_double_take_findings")(text.data(), text.size());
  return text.c_str();
}
void check_finds(const std::string& words) {
  const std::string found = take_findings();
  CHECK_MESSAGE(found.find(words) != std::string::npos, found);
}

// A stream on a device, which becomes this thread's current device.
class Stream {
 public:
  explicit Stream(int device = 0) {
    REQUIRE(HVD_CUDA(SetDevice)(device) == 0);
    REQUIRE(HVD_CUDA(StreamCreateWithPriority)(&stream_, abi::kStreamNonBlocking, 0) == 0);
  }
  ~Stream() { HVD_CUDA(StreamDestroy)(stream_); }
  Stream(const Stream&) = delete;
  void* get() const { return stream_; }
  void synchronize() const { CHECK(HVD_CUDA(StreamSynchronize)(stream_) == 0); }

 private:
  void* stream_ = nullptr;
};

// One rank of a communicator. The test's thread makes the same calls as the plugin.
class Communicator {
 public:
  explicit Communicator(bool blocks, int rank = 0, int size = 1)
      : Communicator(blocks, make_id(), rank, size) {}
  Communicator(bool blocks, const abi::UniqueId& id, int rank, int size) {
    abi::Config config{sizeof config, abi::kConfigMagic, abi::kConfigVersion, blocks ? 1 : 0};
    const int result = HVD_NCCL(CommInitRankConfig)(&comm_, size, id, rank, &config);
    REQUIRE(result == (blocks ? abi::kSuccess : abi::kInProgress));
    settle();
  }
  ~Communicator() {
    if (comm_ != nullptr) HVD_NCCL(CommDestroy)(comm_);
  }
  Communicator(const Communicator&) = delete;
  static abi::UniqueId make_id() {
    abi::UniqueId id{};
    REQUIRE(HVD_NCCL(GetUniqueId)(&id) == abi::kSuccess);
    return id;
  }

  int state() const {
    int state = -1;
    HVD_NCCL(CommGetAsyncError)(comm_, &state);
    return state;
  }
  void settle() const {
    while (state() == abi::kInProgress) std::this_thread::yield();
  }
  int start_sum(const float* from, float* to, size_t count, void* stream) const {
    CHECK(HVD_NCCL(GroupStart)() == abi::kSuccess);
    const int added = HVD_NCCL(AllReduce)(from, to, count, abi::kFloat32, abi::kSum, comm_, stream);
    const int ended = HVD_NCCL(GroupEnd)();
    return added == abi::kSuccess ? ended : added;
  }
  void sum(const float* from, float* to, size_t count, const Stream& stream) const {
    const int started = start_sum(from, to, count, stream.get());
    CHECK((started == abi::kSuccess || started == abi::kInProgress));
    settle();
  }
  void abort() { HVD_NCCL(CommAbort)(std::exchange(comm_, nullptr)); }

 private:
  abi::Comm* comm_ = nullptr;
};

}  // namespace

TEST_CASE("two threads inside of one communicator are a finding") {
  for (const char* version : {"22602", "22809", "23007"}) {
    CAPTURE(version);
    const Variable of("HVD_DOUBLE_VERSION", version);
    const Variable soon("HVD_DOUBLE_LAUNCH_US", "10");
    const Stream stream;
    float number = 1;
    const Communicator alone(false), shared(false);
    for (int i = 0; i < 100; ++i) alone.sum(&number, &number, 1, stream);
    CHECK(take_findings() == "");
    std::atomic<bool> is_over{false};
    std::thread other([&] {
      while (!is_over.load()) shared.state();
    });
    std::string found;
    for (int i = 0; i < 10'000 && found.empty(); ++i) {
      shared.sum(&number, &number, 1, stream);
      found = take_findings();
    }
    is_over.store(true);
    other.join();
    stream.synchronize();
    CHECK(found.find("one_thread: ") == 0);
    CHECK(found.find("ncclCommGetAsyncError") != std::string::npos);
    take_findings();
  }
}

TEST_CASE("before NCCL 2.26 any thread may ask for the error of a communicator") {
  const Variable soon("HVD_DOUBLE_LAUNCH_US", "10");
  const Stream stream;
  float number = 1;
  const Communicator shared(false);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over.load()) shared.state();
  });
  for (int i = 0; i < 200; ++i) shared.sum(&number, &number, 1, stream);
  is_over.store(true);
  other.join();
  CHECK(take_findings() == "");
}

TEST_CASE("any thread may abort a communicator") {
  const Variable version("HVD_DOUBLE_VERSION", "22809");
  for (const bool blocks : {false, true}) {
    const Stream stream;
    const abi::UniqueId id = Communicator::make_id();
    std::unique_ptr<Communicator> ranks[2];
    std::thread second([&] {
      HVD_CUDA(SetDevice)(1);
      ranks[1] = std::make_unique<Communicator>(blocks, id, 1, 2);
    });
    ranks[0] = std::make_unique<Communicator>(blocks, id, 0, 2);
    second.join();
    float number = 1;
    ranks[0]->sum(&number, &number, 1, stream);  // the stream waits for the other rank
    std::thread([&] { ranks[0]->abort(); }).join();
    stream.synchronize();
    CHECK(take_findings() == "");
  }
}

TEST_CASE(
    "an abort waits for the kernels of its communicator, and for those before them on the stream") {
  const Stream stream;
  const abi::UniqueId ids[] = {Communicator::make_id(), Communicator::make_id()};
  std::unique_ptr<Communicator> first[2], second[2];
  const auto open = [&](int rank) {
    HVD_CUDA(SetDevice)(rank);
    first[rank] = std::make_unique<Communicator>(false, ids[0], rank, 2);
    second[rank] = std::make_unique<Communicator>(false, ids[1], rank, 2);
  };
  std::thread other([&] { open(1); });
  open(0);
  other.join();
  float numbers[2] = {1, 1};
  first[0]->sum(&numbers[0], &numbers[0], 1, stream);  // the stream waits for the other rank
  second[0]->sum(&numbers[1], &numbers[1], 1, stream);
  std::atomic<bool> is_over{false};
  std::thread aborting([&] {
    second[0]->abort();
    is_over.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!is_over.load());
  first[0]->abort();
  aborting.join();
  stream.synchronize();
  CHECK(take_findings() == "");
}

TEST_CASE("the start of a communicator takes a while") {
  const Variable start("HVD_DOUBLE_START_MS", "50");
  const auto begin = std::chrono::steady_clock::now();
  const Communicator one(false), other(true);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(100));
}

TEST_CASE("two ranks of a host share no device, before NCCL 2.30") {
  const auto result_of = [](int device, const char* version) {
    const Variable of("HVD_DOUBLE_VERSION", version);
    const abi::UniqueId id = Communicator::make_id();
    const auto join = [&](int rank, int on) {
      abi::Comm* comm = nullptr;
      HVD_CUDA(SetDevice)(on);
      const int result = HVD_NCCL(CommInitRank)(&comm, 2, id, rank);
      HVD_NCCL(CommAbort)(comm);
      return result;
    };
    int other = -1;
    std::thread second([&] { other = join(1, device); });
    const int result = join(0, 0);
    second.join();
    CHECK(other == result);
    return result;
  };
  CHECK(result_of(0, "22809") == 5);
  CHECK(result_of(1, "22809") == abi::kSuccess);
  CHECK(result_of(0, "23007") == 5);
  const Variable shares("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  CHECK(result_of(0, "22809") == 5);
  CHECK(result_of(0, "23007") == abi::kSuccess);
}

TEST_CASE("two threads that launch on one device are a finding") {
  const Variable rules("HVD_DOUBLE_RULES", "one_launcher");
  const Communicator first(false), second(false);
  const auto launch = [](const Communicator& on, int device) {
    const Stream stream(device);
    float number = 1;
    for (int i = 0; i < 20; ++i) on.sum(&number, &number, 1, stream);
    stream.synchronize();
  };
  launch(first, 0);
  launch(second, 0);
  CHECK(take_findings() == "");
  std::thread other([&] { launch(second, 0); });
  launch(first, 0);
  other.join();
  check_finds("launches on the same device");
}

TEST_CASE("a communicator of a group, and one that blocks, is done when the call returns") {
  const Stream stream;
  const Communicator one(true);
  float number = 3, result = 0;
  CHECK(one.start_sum(&number, &result, 1, stream.get()) == abi::kSuccess);
  stream.synchronize();
  CHECK(result == 3);
}

TEST_CASE("a stream that does not wait for the event of its input reads too early") {
  // Returns whether a sum of `rounds` read its input too early.
  const auto reads_early = [](bool waits, float rounds) {
    const Stream writer, reader;
    const Communicator one(false);
    void* event = nullptr;
    CHECK(HVD_CUDA(EventCreateWithFlags)(&event, kDisableTiming) == 0);
    bool is_early = false;
    float input = 0, output = 0;
    for (float next = 1; next <= rounds && !is_early; ++next) {
      CHECK(HVD_CUDA(MemcpyAsync)(&input, &next, sizeof next, abi::kCopyDefault, writer.get()) ==
            0);
      CHECK(HVD_CUDA(EventRecord)(event, writer.get()) == 0);
      if (waits) CHECK(HVD_CUDA(StreamWaitEvent)(reader.get(), event, 0) == 0);
      one.sum(&input, &output, 1, reader);
      reader.synchronize();
      writer.synchronize();
      is_early = output != next;
    }
    CHECK(of_double<int(void*)>("cudaEventDestroy")(event) == 0);
    return is_early;
  };
  const Variable soon("HVD_DOUBLE_LAUNCH_US", "0");
  for (const char* seed : {"1", "2", "3"}) {
    const Variable of("HVD_DOUBLE_SEED", seed);
    CHECK(!reads_early(true, 100));
    // On a busy machine, other threads are late too.
    CHECK(reads_early(false, 10'000));
    const Variable ignores("HVD_DOUBLE_IGNORES", "cudaStreamWaitEvent");
    CHECK(reads_early(true, 10'000));
  }
}

namespace {

// Two ranks, each with one device, launch two communicators: on one stream, or if `crossed` on two,
// and rank 1 in the other order.
void launch_two_communicators(bool crossed) {
  const abi::UniqueId ids[] = {Communicator::make_id(), Communicator::make_id()};
  const auto body = [&](int rank) {
    const Stream streams[] = {Stream(rank), Stream(rank)};
    const Communicator first(false, ids[0], rank, 2), second(false, ids[1], rank, 2);
    float number = 1, results[2] = {};
    const bool turns = crossed && rank == 1;
    (turns ? second : first).sum(&number, &results[0], 1, streams[0]);
    (turns ? first : second).sum(&number, &results[1], 1, streams[crossed ? 1 : 0]);
    for (const Stream& stream : streams) stream.synchronize();
    CHECK(results[0] == 2);
    CHECK(results[1] == 2);
  };
  std::thread other([&] { body(1); });
  body(0);
  other.join();
}

}  // namespace

TEST_CASE("ranks that launch two communicators in different orders are a finding") {
  const Variable rules("HVD_DOUBLE_RULES", "launch_order");
  for (int i = 0; i < 10; ++i) launch_two_communicators(false);
  CHECK(take_findings() == "");
  launch_two_communicators(true);
  check_finds("launch_order: before a group of ");
}

TEST_CASE("kernels that wait for each other's place are a finding") {
  const Variable places("HVD_DOUBLE_PLACES", "1");
  for (int i = 0; i < 10; ++i) launch_two_communicators(false);
  CHECK(take_findings() == "");
  const Variable limit("HVD_DOUBLE_PLACE_MS", "1000");
  // Operations are delayed, so the second kernel may run first after all.
  std::string found;
  for (int i = 0; i < 20 && found.empty(); ++i) {
    launch_two_communicators(true);
    found = take_findings();
  }
  CHECK(found.find("places: a kernel waits for a place") == 0);
}

namespace {

// Numbers in managed memory of the double.
class Numbers {
 public:
  explicit Numbers(size_t count) {
    REQUIRE(of_double<int(void**, size_t, unsigned)>("cudaMallocManaged")(
                &memory_, count * sizeof(float), 1) == 0);
  }
  ~Numbers() { free(); }
  Numbers(const Numbers&) = delete;
  float* data() const { return static_cast<float*>(memory_); }
  void free() {
    if (memory_ != nullptr) of_double<int(void*)>("cudaFree")(std::exchange(memory_, nullptr));
  }

 private:
  void* memory_ = nullptr;
};

// The streams wait until the object is destroyed.
class Held {
 public:
  explicit Held(const Stream& stream) : stream_(stream) {
    HVD_CUDA(LaunchHostFunc)
    (
        stream.get(),
        [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
        },
        &may_go_);
  }
  ~Held() {
    may_go_.store(true);
    stream_.synchronize();
  }
  Held(const Held&) = delete;

 private:
  const Stream& stream_;
  std::atomic<bool> may_go_{false};
};

}  // namespace

TEST_CASE("memory that the CPU touches before an operation on it is over is a finding") {
  const Stream stream;
  const Communicator one(false);
  const Numbers input(1000), output(1000);
  std::fill_n(input.data(), 1000, 2.0F);
  one.sum(input.data(), output.data(), 1000, stream);
  stream.synchronize();
  CHECK(output.data()[999] == 2);
  CHECK(take_findings() == "");
  for (float* touched : {input.data(), output.data()}) {
    const Held held(stream);
    one.sum(input.data(), output.data(), 1000, stream);
    touched[999] = 3;
    check_finds("memory: the CPU reads or writes ");
  }
  const Variable ignores("HVD_DOUBLE_IGNORES", "cudaStreamSynchronize");
  bool is_found = false;
  for (int i = 0; i < 1000 && !is_found; ++i) {
    one.sum(input.data(), output.data(), 1000, stream);
    stream.synchronize();
    static_cast<void>(*static_cast<volatile float*>(output.data()));
    is_found = take_findings().starts_with("memory: the CPU reads or writes ");
  }
  CHECK(is_found);
}

TEST_CASE("memory that is freed before an operation on it is over is a finding") {
  const Stream stream;
  const Communicator one(false);
  Numbers early(10), late(10);
  float result[10];
  {
    const Held held(stream);
    one.sum(early.data(), result, 10, stream);
    early.free();
  }
  const std::string found = take_findings();
  CHECK(found.find("is freed while an operation refers to it") != std::string::npos);
  CHECK(found.find("a collective comes to ") != std::string::npos);
  const Communicator other(false);
  other.sum(late.data(), result, 10, stream);
  stream.synchronize();
  float* const address = late.data();
  late.free();
  CHECK(take_findings() == "");
  other.sum(address, result, 10, stream);
  stream.synchronize();
  check_finds("memory: a collective refers to ");
}

TEST_CASE("an operation on one device with memory of another is a finding") {
  const Stream zero(0);
  const Numbers numbers(10);
  const Stream one(1);
  float result[10];
  {
    const Communicator on_one(false);
    on_one.sum(numbers.data(), result, 10, one);
    one.synchronize();
    check_finds("memory: a collective on device 1 refers to ");
  }
  HVD_CUDA(SetDevice)(0);
  const Communicator on_zero(false);
  on_zero.sum(numbers.data(), result, 10, zero);
  zero.synchronize();
  CHECK(take_findings() == "");
}

TEST_CASE("memory that returns to the program while a kernel dies is a finding") {
  const Variable dying("HVD_DOUBLE_DYING_US", "300000");
  for (const bool is_aborted : {true, false}) {
    const Stream stream;
    const abi::UniqueId id = Communicator::make_id();
    std::unique_ptr<Communicator> ranks[2];
    std::thread second([&] {
      HVD_CUDA(SetDevice)(1);
      ranks[1] = std::make_unique<Communicator>(true, id, 1, 2);
    });
    ranks[0] = std::make_unique<Communicator>(true, id, 0, 2);
    second.join();
    Numbers numbers(10);
    ranks[0]->sum(numbers.data(), numbers.data(), 10, stream);
    // An abort waits for its own kernels, but not for those of other ranks.
    ranks[is_aborted ? 0 : 1]->abort();
    numbers.free();
    if (is_aborted) CHECK(take_findings() == "");
    if (!is_aborted) check_finds("is freed while an operation refers to it");
    stream.synchronize();
    take_findings();  // the kernel may have begun after the memory was freed
  }
}

TEST_CASE("memory of a device is for operations only, and ends") {
  const Stream stream;
  const Variable limit("HVD_DOUBLE_MEMORY", "1000000");
  void *first = nullptr, *second = nullptr;
  CHECK(HVD_CUDA(MallocAsync)(&first, 900'000, stream.get()) == 0);
  CHECK(HVD_CUDA(MallocAsync)(&second, 900'000, stream.get()) == 2);
  const float number = 5;
  float copy = 0;
  CHECK(HVD_CUDA(MemcpyAsync)(first, &number, sizeof number, abi::kCopyDefault, stream.get()) == 0);
  CHECK(HVD_CUDA(MemcpyAsync)(&copy, first, sizeof copy, abi::kCopyDefault, stream.get()) == 0);
  CHECK(copy == 5);  // the memory is not pinned, so the call waited
  CHECK(take_findings() == "");
  static_cast<void>(*static_cast<volatile float*>(first));
  check_finds("memory: the CPU reads or writes ");
  HVD_CUDA(FreeAsync)(first, stream.get());
  stream.synchronize();
  CHECK(HVD_CUDA(MallocAsync)(&second, 900'000, stream.get()) == 0);
  CHECK(second != first);
  HVD_CUDA(FreeAsync)(second, stream.get());
  HVD_CUDA(FreeAsync)(second, stream.get());
  stream.synchronize();
  check_finds("is freed, and is no memory that was allocated");
}

TEST_CASE("a copy reads and writes pinned memory when its stream comes to it") {
  const Stream stream;
  void *pinned = nullptr, *memory = nullptr;
  CHECK(of_double<int(void**, size_t, unsigned)>("cudaHostAlloc")(&pinned, sizeof(float), 0) == 0);
  CHECK(HVD_CUDA(MallocAsync)(&memory, sizeof(float), stream.get()) == 0);
  float& number = *static_cast<float*>(pinned);
  number = 1;
  {
    const Held held(stream);
    CHECK(HVD_CUDA(MemcpyAsync)(memory, pinned, sizeof number, abi::kCopyDefault, stream.get()) ==
          0);
    number = 2;  // written too early: the copy still reads the number
  }
  {
    const Held held(stream);
    CHECK(HVD_CUDA(MemcpyAsync)(pinned, memory, sizeof number, abi::kCopyDefault, stream.get()) ==
          0);
    number = 3;
  }
  CHECK(number == 2);
  HVD_CUDA(FreeAsync)(memory, stream.get());
  stream.synchronize();
  CHECK(of_double<int(void*)>("cudaFreeHost")(pinned) == 0);
  CHECK(take_findings() == "");
}

TEST_CASE("a process with findings" * doctest::skip()) {
  const Variable rules("HVD_DOUBLE_RULES", "one_launcher");
  const Variable late("HVD_DOUBLE_LAUNCH_US", "20000");
  const Stream stream;
  const Communicator first(false), second(false);
  float number = 1;
  std::thread([&] {
    HVD_CUDA(SetDevice)(0);
    first.start_sum(&number, &number, 1, stream.get());
  }).join();
  second.sum(&number, &number, 1, stream);
  first.settle();
  stream.synchronize();
}

namespace {

// Returns the output of this program with one of its skipped cases, and its exit code.
std::pair<std::string, int> run_case(const std::string& name) {
  const std::string self = "/proc/" + std::to_string(::getpid()) + "/exe";
  const std::string command = self + " --no-skip --test-case='" + name + "' 2>&1";
  FILE* child = ::popen(command.c_str(), "r");
  REQUIRE(child != nullptr);
  std::string output;
  for (int next; (next = std::fgetc(child)) != EOF;) output += static_cast<char>(next);
  const int status = ::pclose(child);
  CHECK(WIFEXITED(status));
  return {output, WEXITSTATUS(status)};
}

}  // namespace

TEST_CASE("a process that initialises CUDA late" * doctest::skip()) {
  const auto is_initialised = of_double<int()>("hvd_double_is_initialised");
  const auto devices = [] {
    int count = -1;
    CHECK(HVD_CUDA(GetDeviceCount)(&count) == 0);
    return count;
  };
  const Variable two("CUDA_VISIBLE_DEVICES", "4,5");
  CHECK(is_initialised() == 0);
  CHECK(devices() == 2);
  CHECK(is_initialised() == 1);
  const Variable one("CUDA_VISIBLE_DEVICES", "4");
  CHECK(devices() == 2);
  CHECK(HVD_CUDA(SetDevice)(1) == 0);
  CHECK(HVD_CUDA(SetDevice)(2) == 101);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(HVD_CUDA(SetDevice)(0));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 3);
}

TEST_CASE("a process whose kernel fails" * doctest::skip()) {
  const Variable after("HVD_DOUBLE_FAULT_AFTER", "1");
  const Stream stream;
  const Communicator one(false);
  float number = 4, result = 0;
  one.sum(&number, &result, 1, stream);
  CHECK(HVD_CUDA(StreamSynchronize)(stream.get()) == 0);
  CHECK(result == 4);
  bool has_run = false;
  result = 0;
  one.sum(&number, &result, 1, stream);
  const int launched = HVD_CUDA(LaunchHostFunc)(
      stream.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &has_run);
  CHECK((launched == 0 || launched == 700));  // the kernel may have failed already
  while (HVD_CUDA(StreamSynchronize)(stream.get()) == 0) std::this_thread::yield();
  int count = 0;
  CHECK(HVD_CUDA(GetDeviceCount)(&count) == 700);
  CHECK(result == 0);
  CHECK(!has_run);
}

TEST_CASE("CUDA_VISIBLE_DEVICES counts until the first call, and a child by fork has no CUDA") {
  const auto ran = run_case("a process that initialises CUDA late");
  CHECK_MESSAGE(ran.second == 0, ran.first);
}

TEST_CASE("after a kernel failed every call fails, and no host function runs") {
  const auto ran = run_case("a process whose kernel fails");
  CHECK_MESSAGE(ran.second == 0, ran.first);
}

TEST_CASE("a host function that calls CUDA is a finding") {
  const Stream stream;
  int error = 0;
  HVD_CUDA(LaunchHostFunc)
  (
      stream.get(), [](void* to) { *static_cast<int*>(to) = HVD_CUDA(SetDevice)(0); }, &error);
  stream.synchronize();
  CHECK(error == 800);
  check_finds("host_function: a host function calls cudaSetDevice");
}

namespace {

using BeginCapture = int(void* stream, int mode);
using EndCapture = int(void* stream, void** graph);
constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;

// Captures in a mode while another thread, in its own mode, queries an event. Returns both results.
std::pair<int, int> capture_beside(int mode, int other_mode) {
  const Stream captured, other;
  void *event = nullptr, *graph = nullptr;
  CHECK(HVD_CUDA(EventCreateWithFlags)(&event, kDisableTiming) == 0);
  CHECK(HVD_CUDA(EventRecord)(event, other.get()) == 0);
  other.synchronize();
  CHECK(of_double<BeginCapture>("cudaStreamBeginCapture")(captured.get(), mode) == 0);
  int answer = -1;
  std::thread([&] {
    int exchanged = other_mode;
    CHECK(of_double<int(int*)>("cudaThreadExchangeStreamCaptureMode")(&exchanged) == 0);
    CHECK(exchanged == kGlobal);
    answer = HVD_CUDA(EventQuery)(event);
  }).join();
  const int ended = of_double<EndCapture>("cudaStreamEndCapture")(captured.get(), &graph);
  of_double<int(void*)>("cudaEventDestroy")(event);
  return {ended, answer};
}

}  // namespace

TEST_CASE("a thread that is not relaxed spoils the capture of another by an unsafe call") {
  CHECK(capture_beside(kGlobal, kGlobal) == std::pair{901, 900});
  CHECK(capture_beside(kGlobal, kRelaxed) == std::pair{0, 0});
  CHECK(capture_beside(kGlobal, kThreadLocal) == std::pair{0, 0});
  CHECK(capture_beside(kThreadLocal, kGlobal) == std::pair{0, 0});
  CHECK(capture_beside(kRelaxed, kGlobal) == std::pair{0, 0});
}

TEST_CASE("a capture draws in streams that wait for its events, and runs nothing") {
  const Stream captured, drawn;
  void *event = nullptr, *graph = nullptr;
  CHECK(HVD_CUDA(EventCreateWithFlags)(&event, kDisableTiming) == 0);
  int calls = 0;
  const auto count = [](void* to) { ++*static_cast<int*>(to); };
  const auto end = of_double<EndCapture>("cudaStreamEndCapture");
  CHECK(of_double<BeginCapture>("cudaStreamBeginCapture")(captured.get(), kGlobal) == 0);
  CHECK(HVD_CUDA(LaunchHostFunc)(captured.get(), count, &calls) == 0);
  CHECK(HVD_CUDA(EventRecord)(event, captured.get()) == 0);
  CHECK(HVD_CUDA(StreamWaitEvent)(drawn.get(), event, 0) == 0);
  CHECK(HVD_CUDA(LaunchHostFunc)(drawn.get(), count, &calls) == 0);
  int status = 0;
  CHECK(of_double<int(void*, int*)>("cudaStreamIsCapturing")(drawn.get(), &status) == 0);
  CHECK(status == 1);
  int from_other = 0;
  std::thread([&] { from_other = end(captured.get(), &graph); }).join();
  CHECK(from_other == 908);
  CHECK(end(captured.get(), &graph) == 0);
  for (const Stream* stream : {&captured, &drawn}) stream->synchronize();
  CHECK(calls == 0);
  CHECK(HVD_CUDA(EventQuery)(event) == 907);
  CHECK(HVD_CUDA(LaunchHostFunc)(drawn.get(), count, &calls) == 0);
  drawn.synchronize();
  CHECK(calls == 1);
  of_double<int(void*)>("cudaEventDestroy")(event);
}

TEST_CASE("stream 0 is the default stream of the current device") {
  const auto launch = HVD_CUDA(LaunchHostFunc);
  std::atomic<bool> may_go{false};
  CHECK(HVD_CUDA(SetDevice)(0) == 0);
  CHECK(launch(
            nullptr,
            [](void* flag) {
              while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
            },
            &may_go) == 0);
  void* events[2] = {};
  for (const int device : {0, 1}) {
    CHECK(HVD_CUDA(SetDevice)(device) == 0);
    CHECK(HVD_CUDA(EventCreateWithFlags)(&events[device], kDisableTiming) == 0);
    CHECK(HVD_CUDA(EventRecord)(events[device], nullptr) == 0);
  }
  CHECK(HVD_CUDA(StreamSynchronize)(nullptr) == 0);  // the null stream of device 1
  CHECK(HVD_CUDA(EventQuery)(events[1]) == 0);
  CHECK(HVD_CUDA(EventQuery)(events[0]) == abi::kNotReady);
  may_go.store(true);
  CHECK(HVD_CUDA(SetDevice)(0) == 0);
  CHECK(HVD_CUDA(StreamSynchronize)(nullptr) == 0);
  CHECK(HVD_CUDA(EventQuery)(events[0]) == 0);
  for (void* event : events) of_double<int(void*)>("cudaEventDestroy")(event);
}

TEST_CASE("an event is recorded on streams of its device, and any stream may wait for it") {
  const Stream one(1), zero(0);  // device 0 is current
  void* event = nullptr;
  CHECK(HVD_CUDA(EventCreateWithFlags)(&event, kDisableTiming) == 0);
  CHECK(HVD_CUDA(EventRecord)(event, one.get()) == 400);
  CHECK(HVD_CUDA(SetDevice)(1) == 0);
  CHECK(HVD_CUDA(EventRecord)(event, zero.get()) == 0);
  CHECK(HVD_CUDA(StreamWaitEvent)(one.get(), event, 0) == 0);
  one.synchronize();
  CHECK(HVD_CUDA(EventQuery)(event) == 0);
  of_double<int(void*)>("cudaEventDestroy")(event);
}

TEST_CASE("the time between events is known once their stream has reached both") {
  const Stream stream;
  std::vector<void*> events(3);
  for (size_t i = 0; i < events.size(); ++i) {
    CHECK(HVD_CUDA(EventCreateWithFlags)(&events[i], i < 2 ? 0 : kDisableTiming) == 0);
  }
  const auto elapsed = HVD_CUDA(EventElapsedTime);
  float milliseconds = -1;
  CHECK(elapsed(&milliseconds, events[0], events[1]) == 400);  // not recorded
  std::atomic<bool> may_go{false};
  for (void* event : events) {
    CHECK(HVD_CUDA(EventRecord)(event, stream.get()) == 0);
    if (event != events[0]) continue;
    const auto wait = [](void* flag) {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    CHECK(HVD_CUDA(LaunchHostFunc)(stream.get(), wait, &may_go) == 0);
  }
  CHECK(elapsed(&milliseconds, events[0], events[1]) == abi::kNotReady);
  may_go.store(true);
  stream.synchronize();
  CHECK(elapsed(&milliseconds, events[0], events[1]) == 0);
  CHECK(milliseconds > 0);
  CHECK(elapsed(&milliseconds, events[0], events[2]) == 400);  // has no time
  for (void* event : events) of_double<int(void*)>("cudaEventDestroy")(event);
}

TEST_CASE("a thread keeps its last error until it takes it") {
  const auto take = of_double<int()>("cudaGetLastError");
  take();
  CHECK(HVD_CUDA(SetDevice)(99) == 101);
  CHECK(HVD_CUDA(SetDevice)(0) == 0);
  std::thread([&] { CHECK(take() == 0); }).join();
  CHECK(take() == 101);
  CHECK(take() == 0);
}

TEST_CASE("contexts on two devices are a finding") {
  const Variable rules("HVD_DOUBLE_RULES", "one_context");
  { const Stream zero(0), again(0); }
  CHECK(take_findings() == "");
  const Stream other(31);
  check_finds("one_context: the process makes a context on device 31 beside that on device 0");
}

TEST_CASE("a finding that no test takes is a line, a stack and the process's exit code") {
  const auto [output, code] = run_case("a process with findings");
  CHECK(code == 86);
  CHECK(output.find("double: one_launcher: thread ") != std::string::npos);
  CHECK(output.find("libnccl_double.so") != std::string::npos);
  CHECK(output.find("double: 1 findings") != std::string::npos);
}
