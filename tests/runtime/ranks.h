// The ranks of a job as runtimes of this process, for tests. The runtimes' own threads drive them.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/shm/shared_heap.h"
#include "runtime/memory_world.h"
#include "runtime/runtime.h"

namespace hvd::test {

enum class Links { kMemory, kBuiltin };

// Returns whether this build has the built-in controller and op.
bool has_builtin_links();

struct RanksOptions {
  Links links = Links::kMemory;
  Settings settings;
  std::vector<int32_t> machines;  // each rank's machine, for memory links; empty: one machine
  bool has_heaps = false;         // each rank shares its own memory with other ranks
  uint32_t epoch = 0;
  double start_seconds = 20;
  std::vector<std::vector<int32_t>> process_sets;
  bool has_devices = false;                 // the memory links run batches on devices
  std::chrono::nanoseconds device_time{0};  // MemoryWorld::device_time
  // The memory links delay each message by a random time of at most this; the seed decides.
  std::chrono::microseconds late{0};
  unsigned late_seed = 0;
  std::vector<RankCounters>* counters = nullptr;  // by rank; null: each rank has its own counters
  // Returns a rank's view of the shared store; empty: the shared store itself.
  std::function<std::shared_ptr<rendezvous::Store>(int rank, std::shared_ptr<rendezvous::Store>)>
      store_of;
};

class Ranks {
 public:
  explicit Ranks(int size, RanksOptions options = {});
  ~Ranks();

  int size() const { return size_; }
  runtime::Runtime& operator[](int rank) { return *runtimes_[static_cast<size_t>(rank)]; }
  // Runs body(rank) on a thread for each rank, and waits for all threads.
  void each(const std::function<void(int rank)>& body);
  // Shuts all ranks down; the destructor does so too.
  void shutdown();
  MemoryWorld& world() { return *world_; }
  collectives::SharedHeap& heap(int rank) { return heaps_[static_cast<size_t>(rank)]; }
  rendezvous::Store& store() { return *store_; }
  // By rank: the result of its start; a failed rank has no runtime.
  std::vector<Status> start_status;

 private:
  const int size_;
  std::shared_ptr<rendezvous::Store> store_;
  std::unique_ptr<MemoryWorld> world_;
  std::deque<collectives::SharedHeap> heaps_;
  std::vector<std::unique_ptr<runtime::Runtime>> runtimes_;
};

// One rank's work and its buffers.
struct Work {
  template <typename T>
  Work(int32_t op, std::string name, std::vector<T> values, int32_t dtype,
       std::vector<int64_t> shape = {});

  hvd_submission submission{};
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  hvd_tensor tensor{};
  hvd_handle handle = 0;

  Work(Work&&) = delete;
  template <typename T>
  std::vector<T> result() const {
    std::vector<T> values(output.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), output.data(), output.size());
    return values;
  }
  Status submit(runtime::Runtime& runtime) { return runtime.submit(submission, &handle); }
  // Waits up to 20 s and releases.
  Status finish(runtime::Runtime& runtime);
  Status run(runtime::Runtime& runtime);
};

template <typename T>
Work::Work(int32_t op, std::string text, std::vector<T> values, int32_t dtype,
           std::vector<int64_t> extents)
    : name(std::move(text)), shape(std::move(extents)) {
  if (shape.empty()) shape.push_back(static_cast<int64_t>(values.size()));
  input.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(input.data(), values.data(), input.size());
  const bool in_caller = op == HVD_ALLREDUCE || op == HVD_BROADCAST;
  if (in_caller) output.resize(input.size());
  tensor.dtype = dtype;
  tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.shape = shape.data();
  tensor.input = input.data();
  tensor.output = in_caller ? output.data() : nullptr;
  submission.struct_size = sizeof submission;
  submission.op = op;
  submission.reduce_op = HVD_SUM;
  submission.name = op == HVD_BARRIER ? nullptr : name.c_str();
  submission.device = HVD_CPU;
  submission.tensor_count = op == HVD_BARRIER || op == HVD_JOIN ? 0 : 1;
  submission.tensors = &tensor;
}

}  // namespace hvd::test
