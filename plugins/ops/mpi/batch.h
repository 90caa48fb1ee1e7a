// Runs one batch as nonblocking MPI operations on its set's communicator. MPI cannot abandon an operation, and may use
// an operation's memory after the job has failed. MPI uses a single tensor directly if the batch keeps its tensors. In
// all other cases MPI gets packed copies, which a failed batch leaks. Lives on the progress thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "ops/common/backend.h"
#include "ops/common/batch_memory.h"
#include "ops/mpi/library.h"

namespace hvd::ops::mpi {

// Returns whether the counts of the batch fit into ints, as MPI's counts must.
bool can_run(const hvd_batch& batch, int32_t size);

class MpiBatch : public RunningBatch {
 public:
  MpiBatch(World& world, const MpiComm& communicator, const hvd_batch& batch)
      : world_(world), comm_(communicator), batch_(batch), memory_(std::make_unique<Memory>()) {}
  ~MpiBatch() override;
  // Starts the operations. poll() returns an error of the start.
  void start() { started_ = start_operations(); }
  std::optional<Status> poll() override;
  bool uses_tensors() const override { return direct_ && !over_; }

 private:
  // Maximum number of elements in one MPI operation.
  static constexpr int64_t kPiece = int64_t{1} << 30;
  // Memory, in addition to the tensors, that MPI uses until the operations are complete.
  struct Memory {
    std::vector<MPI_Request> requests;
    Buffer sent, received;
    std::vector<int> counts, offsets;  // by member
  };
  bool may_use_tensors() const;
  Status start_operations();
  Status allreduce();
  Status reduce_in_place(std::byte* at, int64_t total);
  Status reducescatter();
  Status allgather();
  Status broadcast();
  Status alltoall();
  void finish();
  // Returns whether to sum by slices: each rank receives one slice of all ranks' tensors, reduces it, and sends the
  // result to all ranks.
  bool goes_by_slices(int64_t total) const;
  Status send_slices();
  Status spread_slice();
  Status exchange_with(int other, const std::byte* out, int64_t out_count, std::byte* in,
                       int64_t in_count);
  std::pair<int64_t, int64_t> slice(int member) const;  // first element, count
  // width() returns the size in bytes, and type() the type, of an element that MPI sends.
  size_t width() const { return size_of(sum_dtype(batch_)); }
  MPI_Datatype type() const { return world_.reductions().type(sum_dtype(batch_)); }
  std::byte* room(Buffer* buffer, int64_t count);
  std::byte* received() const { return memory_->received.bytes.get(); }
  Status check(int code, const char* what);
  MPI_Request* next_request();
  Status exchange(const std::byte* from, const std::vector<int64_t>& to_each, std::byte* to,
                  const std::vector<int64_t>& from_each);

  World& world_;
  const MpiComm& comm_;
  const hvd_batch& batch_;
  std::unique_ptr<Memory> memory_;
  Status started_;
  const std::byte* summand_ = nullptr;  // in a sum by slices: this rank's own elements
  std::byte* sum_ = nullptr;
  int64_t total_ = 0;
  bool spreads_ = false;  // in a sum by slices: this rank sends its reduced slice to all ranks
  bool direct_ = false;   // MPI uses the tensors without copies
  bool over_ = false;
};

}  // namespace hvd::ops::mpi
