// A sum by messages between ranks, used if MPI_Iallreduce is slow: each member receives its slice from
// all other members, reduces it, and sends the result to all.
#include "base/dtype.h"
#include "collectives/kernels/reduce_kernels.h"
#include "ops/mpi/batch.h"

namespace hvd::ops::mpi {
namespace {

// In this order: the first of two message tags, the minimum size in bytes, the maximum number of members.
constexpr int kSliceTag = 2;
constexpr int64_t kSliceBytes = 256 << 10;
constexpr int kSliceMembers = 16;

}  // namespace

bool MpiBatch::goes_by_slices(int64_t total) const {
  return hvd::mpi::abi().sums_by_slices && comm_.size > 1 && comm_.size <= kSliceMembers &&
         total * static_cast<int64_t>(width()) >= kSliceBytes && total <= kPiece;
}

std::pair<int64_t, int64_t> MpiBatch::slice(int member) const {
  const int64_t first = total_ * member / comm_.size;
  return {first, total_ * (member + 1) / comm_.size - first};
}

Status MpiBatch::exchange_with(int other, const std::byte* out, int64_t out_count, std::byte* in,
                               int64_t in_count) {
  HVD_RETURN_IF_ERROR(check(world_.api().irecv(in, static_cast<int>(in_count), type(), other,
                                               kSliceTag + spreads_, comm_.comm, next_request()),
                            "MPI_Irecv"));
  return check(world_.api().isend(out, static_cast<int>(out_count), type(), other,
                                  kSliceTag + spreads_, comm_.comm, next_request()),
               "MPI_Isend");
}

Status MpiBatch::send_slices() {
  const size_t element_size = width();
  const int64_t kept = slice(comm_.index).second;
  std::byte* to = room(&memory_->sent, kept * (comm_.size - 1));
  if (to == nullptr) return internal_error("there is no memory for a slice of an allreduce");
  memory_->requests.reserve(2 * static_cast<size_t>(comm_.size));
  for (int other = 0; other < comm_.size; ++other) {
    if (other == comm_.index) continue;
    const auto [first, count] = slice(other);
    HVD_RETURN_IF_ERROR(exchange_with(other, summand_ + static_cast<size_t>(first) * element_size,
                                      count, to, kept));
    to += static_cast<size_t>(kept) * element_size;
  }
  return {};
}

Status MpiBatch::spread_slice() {
  const size_t element_size = width();
  const auto [own, kept] = slice(comm_.index);
  std::byte* reduced = sum_ + static_cast<size_t>(own) * element_size;
  std::vector<const void*> inputs{summand_ + static_cast<size_t>(own) * element_size};
  for (int i = 0; i + 1 < comm_.size; ++i) {
    inputs.push_back(memory_->sent.bytes.get() + static_cast<size_t>(kept * i) * element_size);
  }
  collectives::reduce_function(sum_dtype(batch_), static_cast<hvd_reduce_op>(batch_.reduce_op))(
      reduced, inputs.data(), inputs.size(), static_cast<size_t>(kept), {}, {});
  spreads_ = true;
  memory_->requests.clear();
  for (int other = 0; other < comm_.size; ++other) {
    if (other == comm_.index) continue;
    const auto [first, count] = slice(other);
    HVD_RETURN_IF_ERROR(exchange_with(other, reduced, kept,
                                      sum_ + static_cast<size_t>(first) * element_size, count));
  }
  return {};
}

}  // namespace hvd::ops::mpi
