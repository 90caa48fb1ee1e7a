// Measures links and collectives without a runtime: latency and bandwidth of an allreduce between
// processes of one host, or of several hosts, which are network namespaces (as root). Measures a
// plain stream pair next to several hosts. Also prints the processor time of rank 0 per GB.
//
//   mesh_bench [ranks [hosts [bytes...]]]
//
// HVD_BENCH_RATE=1gbit limits each host's sending, HVD_BENCH_DTYPE and HVD_BENCH_REDUCTION choose
// the reduction. HVD_BENCH_ENCRYPT=1 encrypts links between hosts and prints the processor time for
// it.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "base/dtype.h"
#include "collectives/world.h"
#include "net_hosts.h"
#include "stream_pair.h"

namespace {

using hvd::Clock;
using hvd::test::Rank;

// A key-value store in memory that all forked processes share.
class ForkStore final : public hvd::collectives::KeyValueStore {
 public:
  ForkStore() {
    entries_ = static_cast<Entry*>(::mmap(nullptr, sizeof(Entry) * kEntries, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    next_ = static_cast<std::atomic<size_t>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  hvd::Status set(std::string_view key, hvd::ByteView value) override {
    Entry& entry = entries_[next_->fetch_add(1)];
    std::copy(key.begin(), key.end(), entry.key);
    std::copy(value.begin(), value.end(), entry.value);
    entry.size.store(value.size());
    return {};
  }
  hvd::Result<hvd::Bytes> get(std::string_view key, hvd::Deadline deadline) override {
    while (!deadline.passed()) {
      for (size_t i = 0; i < kEntries; ++i) {
        const size_t size = entries_[i].size.load();
        if (size > 0 && key == entries_[i].key) {
          return hvd::Bytes(entries_[i].value, entries_[i].value + size);
        }
      }
      ::sched_yield();
    }
    return hvd::deadline_exceeded("a rank did not start");
  }

 private:
  static constexpr size_t kEntries = 1024;
  struct Entry {
    std::atomic<size_t> size;
    char key[64];
    std::byte value[2048];
  };
  Entry* entries_;
  std::atomic<size_t>* next_;
};

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <typename Body>
double timed_us(Body&& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Prints the processor time that encryption costs the sender and the receiver of a link.
void measure_records() {
  using hvd::collectives::RecordOpener;
  using hvd::collectives::RecordSealer;
  constexpr size_t kRecords = 8192;
  const hvd::Digest key = hvd::sha256({});
  RecordSealer sealer(key);
  RecordOpener opener(key);
  hvd::Bytes content(RecordSealer::kMostContent), opened(content.size());
  const hvd::ByteView part = content;
  double sealing = 0, opening = 0;
  for (size_t i = 0; i < kRecords; ++i) {
    const double start = processor_seconds();
    if (!sealer.seal({&part, 1}).ok()) std::abort();
    const double sealed = processor_seconds();
    for (hvd::ByteView rest = sealer.output(); !rest.empty();) {
      const auto space = opener.space();
      const size_t size = std::min(space.size(), rest.size());
      std::copy_n(rest.begin(), size, space.begin());
      opener.advance(size);
      rest = rest.subspan(size);
      if (!opener.take(opened).ok()) std::abort();
    }
    sealing += sealed - start;
    opening += processor_seconds() - sealed;
    sealer.sent(sealer.output().size());
  }
  const double gb = static_cast<double>(kRecords * content.size()) / 1e9;
  std::printf("records of 64 KiB: seal %.3f s/GB, open %.3f s/GB of processor time\n", sealing / gb,
              opening / gb);
}

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

// Reads the tuning from HVD_BENCH_* variables, to search for the switch points.
hvd_tuning tuning_from_environment() {
  hvd_tuning tuning{};
  tuning.struct_size = sizeof tuning;
  tuning.whole_limit = number("HVD_BENCH_WHOLE_LIMIT", 0);
  tuning.doubling_limit = number("HVD_BENCH_DOUBLING_LIMIT", 0);
  tuning.ring_from = number("HVD_BENCH_RING_FROM", 0);
  tuning.chunk = number("HVD_BENCH_CHUNK", 0);
  tuning.direct_hosts = number("HVD_BENCH_DIRECT_HOSTS", 0);
  tuning.streams = number("HVD_BENCH_STREAMS", 0);
  tuning.drivers = number("HVD_BENCH_DRIVERS", 0);
  return tuning;
}

// A repeatable in-place allreduce of `bytes`. HVD_BENCH_DTYPE and HVD_BENCH_REDUCTION are numbers
// of types.h; an average is 0.
class Allreduce {
 public:
  Allreduce(Rank& rank, size_t bytes) : rank_(rank), values_(bytes / sizeof(float), 0.0f) {
    const auto dtype = static_cast<hvd_dtype>(number("HVD_BENCH_DTYPE", HVD_FLOAT32));
    const int reduction = number("HVD_BENCH_REDUCTION", HVD_SUM);
    tensor_.input = tensor_.output = values_.data();
    tensor_.count = static_cast<int64_t>(bytes / hvd::size_of(dtype));
    tensor_.row = 1;
    batch_.struct_size = sizeof batch_;
    batch_.op = HVD_ALLREDUCE;
    batch_.reduce_op = reduction == HVD_AVERAGE ? HVD_SUM : reduction;
    batch_.dtype = dtype;
    batch_.device = HVD_CPU;
    batch_.prescale = batch_.postscale = 1;
    if (reduction == HVD_AVERAGE) {
      batch_.divisor = rank.size();
      batch_.postscale = 1.0 / rank.size();
    }
    batch_.tensor_count = 1;
    batch_.tensors = &tensor_;
    batch_.tuning = &tuning_;
  }
  void run() {
    const hvd::Status ran = rank_.run(batch_);
    if (ran.ok()) return;
    std::fprintf(stderr, "rank %d: %s\n", rank_.rank(), ran.message().c_str());
    std::exit(1);
  }

 private:
  Rank& rank_;
  std::vector<float> values_;
  hvd_tuning tuning_ = tuning_from_environment();
  hvd_batch_tensor tensor_{};
  hvd_batch batch_{};
};

// Alternates both measurements, so that both meet the same disturbances.
void measure_line(Rank& rank, size_t bytes, hvd::bench::StreamPair* pair) {
  Allreduce allreduce(rank, bytes);
  std::vector<char> out(pair != nullptr ? bytes : 0, 'x');
  std::vector<char> in(out.size());
  std::vector<double> ours, plain;
  double processor = 0;
  const size_t rounds = std::clamp<size_t>((size_t{256} << 20) / (bytes + 50000), 16, 5000);
  const size_t turns = std::min<size_t>(rounds, 32);
  for (size_t turn = 0; turn < turns; ++turn) {
    const double before = processor_seconds();
    for (size_t round = 0; round < rounds / turns; ++round) {
      ours.push_back(timed_us([&] { allreduce.run(); }));
    }
    processor += processor_seconds() - before;
    for (size_t round = 0; pair != nullptr && round < rounds / turns; ++round) {
      plain.push_back(timed_us([&] { pair->exchange(out.data(), in.data(), bytes); }));
    }
  }
  if (rank.rank() != 0) return;
  const double us = median(ours);
  std::printf("%9zu B  %10.2f us  %7.2f GB/s  %6.3f processor s/GB", bytes, us,
              static_cast<double>(bytes) / us / 1e3,
              processor * 1e9 / static_cast<double>(bytes * ours.size()));
  if (pair != nullptr) {
    const double pair_us = median(plain);
    std::printf("   plain stream pair %10.2f us, %5.1f %%", pair_us, 100 * pair_us / us);
  }
  std::printf("\n");
  std::fflush(stdout);
}

struct Options {
  int ranks = 2;
  int hosts = 1;
  std::vector<size_t> bytes;
};

int run_rank(int i, const Options& options, ForkStore& store,
             const hvd::bench::NetHosts* net_hosts) {
  std::vector<int> host_of_rank;
  for (int r = 0; r < options.ranks; ++r) host_of_rank.push_back(r * options.hosts / options.ranks);
  const int host = host_of_rank[static_cast<size_t>(i)];
  if (net_hosts != nullptr) net_hosts->enter(host);
  hvd::test::World world(host_of_rank);
  auto mesh_options = world.options(i);
  mesh_options.memory_map = nullptr;
  mesh_options.with_loopback = net_hosts == nullptr;
  mesh_options.credentials.encrypts = number("HVD_BENCH_ENCRYPT", 0) != 0;
  if (i == 0 && mesh_options.credentials.encrypts) measure_records();
  const auto start = Clock::now();
  auto mesh = hvd::test::Mesh::establish(mesh_options, store, hvd::Deadline::after_seconds(20));
  if (!mesh.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", i, mesh.status().message().c_str());
    return 1;
  }
  if (i == 0) {
    std::printf("%d ranks, %d hosts; met in %.2f ms\n", options.ranks, options.hosts,
                std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  Rank rank(std::move(mesh).value());
  // With several hosts the kernel needs the cores that spinning would occupy.
  rank.spins = number("HVD_BENCH_SPINS", options.hosts > 1 ? 2000 : 1 << 30);
  // The stream pair connects the first ranks of the first two hosts.
  std::unique_ptr<hvd::bench::StreamPair> pair;
  const bool first_of_second = host == 1 && host_of_rank[static_cast<size_t>(i - 1)] == 0;
  if (net_hosts != nullptr && (i == 0 || first_of_second)) {
    pair = std::make_unique<hvd::bench::StreamPair>(i == 0, net_hosts->address(0));
  }
  for (const size_t bytes : options.bytes) measure_line(rank, bytes, pair.get());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.ranks = std::atoi(argv[1]);
  if (argc > 2) options.hosts = std::atoi(argv[2]);
  for (int i = 3; i < argc; ++i) options.bytes.push_back(std::strtoull(argv[i], nullptr, 10));
  if (options.bytes.empty()) {
    options.bytes = {4, 2048, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
  }
  std::unique_ptr<hvd::bench::NetHosts> net_hosts;
  if (options.hosts > 1 && ::getuid() == 0) {
    net_hosts = std::make_unique<hvd::bench::NetHosts>(options.hosts);
  }
  ForkStore store;
  std::vector<pid_t> processes;
  for (int i = 0; i < options.ranks; ++i) {
    const pid_t process = ::fork();
    if (process == 0) {
      const int code = run_rank(i, options, store, net_hosts.get());
      std::fflush(stdout);
      ::_exit(code);
    }
    processes.push_back(process);
  }
  int failed = 0;
  for (const pid_t process : processes) {
    int status = 0;
    ::waitpid(process, &status, 0);
    failed |= status;
  }
  return failed == 0 ? 0 : 1;
}
