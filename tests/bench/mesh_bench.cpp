// Where the links and collectives stand by themselves, without a runtime around them: latency and
// bandwidth of an allreduce between processes of one host, or of two played hosts.
//
//   mesh_bench [ranks [hosts]]
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "collectives/world.h"

namespace {

using hvd::Clock;
using hvd::test::Rank;

// Keys in memory that all processes share: the board of a benchmark.
class ForkBoard final : public hvd::collectives::Board {
 public:
  ForkBoard() {
    entries_ = static_cast<Entry*>(::mmap(nullptr, sizeof(Entry) * kEntries,
                                          PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                          0));
    next_ = static_cast<std::atomic<size_t>*>(::mmap(
        nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
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

double median_us(Rank& rank, size_t count, int rounds) {
  std::vector<float> values(count, 1.0f);
  hvd_batch_tensor tensor{values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr,
                          nullptr};
  hvd_batch batch{};
  batch.op = HVD_ALLREDUCE;
  batch.reduce_op = HVD_SUM;
  batch.dtype = HVD_FLOAT32;
  batch.device = HVD_CPU;
  batch.prescale = batch.postscale = 1;
  batch.tensor_count = 1;
  batch.tensors = &tensor;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    const hvd::Status ran = rank.run(batch);
    if (!ran.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", rank.rank(), ran.message().c_str());
      std::exit(1);
    }
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

void measure(Rank& rank) {
  rank.spins = 1 << 30;
  const struct {
    size_t bytes;
    int rounds;
  } lines[] = {{4, 20000}, {2048, 20000}, {16 << 10, 5000}, {64 << 10, 3000},
               {1 << 20, 500}, {8 << 20, 60}, {64 << 20, 12}};
  for (const auto& line : lines) {
    const double us = median_us(rank, line.bytes / 4, line.rounds);
    if (rank.rank() != 0) continue;
    std::printf("%9zu B  %10.2f us  %7.2f GB/s\n", line.bytes, us,
                static_cast<double>(line.bytes) / us / 1e3);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int hosts = argc > 2 ? std::atoi(argv[2]) : 1;
  std::vector<int> host_of_rank;
  for (int i = 0; i < ranks; ++i) host_of_rank.push_back(i * hosts / ranks);
  ForkBoard board;
  for (int i = 0; i < ranks; ++i) {
    if (::fork() != 0) continue;
    hvd::test::World world(host_of_rank);
    auto options = world.options(i);
    options.memory_map = nullptr;
    const auto start = Clock::now();
    auto mesh =
        hvd::test::Mesh::establish(options, board, hvd::Deadline::after_seconds(20));
    if (!mesh.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", i, mesh.status().message().c_str());
      return 1;
    }
    if (i == 0) {
      std::printf("%d ranks, %d hosts; met in %.2f ms\n", ranks, hosts,
                  std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    Rank rank(std::move(mesh).value());
    measure(rank);
    return 0;
  }
  int failed = 0;
  for (int i = 0; i < ranks; ++i) {
    int status = 0;
    ::wait(&status);
    failed |= status;
  }
  return failed == 0 ? 0 : 1;
}
