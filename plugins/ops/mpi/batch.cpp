#include "ops/mpi/batch.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

#include "base/plugin_record.h"
#include "base/text.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::ops::mpi {
namespace {

constexpr int kAlltoallTag = 1;

std::vector<int> ints_of(const std::vector<int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

// For sums by slices: the first of two message tags, the minimum size in bytes, and the maximum number of members.
constexpr int kSliceTag = 2;
constexpr int64_t kSliceBytes = 256 << 10;
constexpr int kSliceMembers = 16;

}  // namespace

bool can_run(const hvd_batch& batch, int32_t size) {
  if (batch.op == HVD_REDUCESCATTER) {
    for (const int64_t count : scatter_counts(batch, size)) {
      if (count > INT_MAX) return false;
    }
  }
  if (batch.op == HVD_ALLGATHER) {
    int64_t total = 0;
    for (const int64_t count : gather_counts(batch, size)) total += count;
    return total <= INT_MAX;
  }
  return true;
}

MpiBatch::~MpiBatch() {
  if (over_) {
    world_.buffers().give(std::move(memory_->sent));
    world_.buffers().give(std::move(memory_->received));
    return;
  }
  world_.fail();
  static_cast<void>(memory_.release());  // MPI may still read and write this memory
}

std::byte* MpiBatch::room(Buffer* buffer, int64_t count) {
  *buffer = world_.buffers().take(static_cast<size_t>(count) * width());
  return buffer->bytes.get();
}

Status MpiBatch::check(int code, const char* what) {
  if (code == MPI_SUCCESS) return {};
  return aborted(cat(what, ": ", world_.describe(code)));
}

MPI_Request* MpiBatch::next_request() {
  return &memory_->requests.emplace_back(world_.api().handles.no_request);
}

bool MpiBatch::may_use_tensors() const { return field_of(batch_, &hvd_batch::keeps_tensors) != 0; }

Status MpiBatch::start_operations() {
  switch (batch_.op) {
    case HVD_ALLREDUCE:
      return allreduce();
    case HVD_REDUCESCATTER:
      return reducescatter();
    case HVD_ALLGATHER:
      return allgather();
    case HVD_BROADCAST:
      return broadcast();
    default:
      return alltoall();
  }
}

Status MpiBatch::allreduce() {
  direct_ = may_use_tensors() && is_direct(batch_);
  const int64_t total = total_count(batch_);
  const bool by_slices = goes_by_slices(total);
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  if (direct_) {
    const hvd_batch_tensor& tensor = batch_.tensors[0];
    from = to = static_cast<std::byte*>(tensor.output);
    if (by_slices && (batch_.prescale == 1 || batch_.dtype == HVD_BOOL)) {
      from = static_cast<const std::byte*>(tensor.input);
    } else {
      scale(to, tensor.input, batch_.dtype, total, collectives::scale_before(batch_));
    }
  } else {
    from = to = room(&memory_->received, total);
    if (to == nullptr) return internal_error("there is no memory to pack an allreduce");
    pack_reduce(batch_, to);
  }
  if (by_slices) {
    sum_ = to;
    summand_ = from;
    total_ = total;
    return send_slices();
  }
  return reduce_in_place(to, total);
}

// MPI requires MPI_IN_PLACE on all members or on none, and Open MPI chooses its algorithm by this argument.
// Members with differently placed tensors (in place, packed, joined) therefore all reduce in place.
Status MpiBatch::reduce_in_place(std::byte* at, int64_t total) {
  memory_->requests.reserve(static_cast<size_t>(total / kPiece) + 1);
  for (int64_t first = 0; first < total; first += kPiece) {
    HVD_RETURN_IF_ERROR(check(
        world_.api().iallreduce(MPI_IN_PLACE, at + static_cast<size_t>(first) * width(),
                                static_cast<int>(std::min(kPiece, total - first)), type(),
                                world_.reductions().operation(sum_dtype(batch_), batch_.reduce_op),
                                comm_.comm, next_request()),
        "MPI_Iallreduce"));
  }
  return {};
}

Status MpiBatch::reducescatter() {
  std::vector<int>& counts = memory_->counts = ints_of(scatter_counts(batch_, comm_.size));
  direct_ = may_use_tensors() && is_direct(batch_) &&
            batch_.tensors[0].input != batch_.tensors[0].output &&
            (batch_.prescale == 1 || batch_.dtype == HVD_BOOL);
  const void* from = batch_.tensors[0].input;
  void* to = batch_.tensors[0].output;
  if (!direct_) {
    std::byte* sent = room(&memory_->sent, total_count(batch_));
    to = room(&memory_->received, counts[static_cast<size_t>(comm_.index)]);
    if (sent == nullptr || to == nullptr) {
      return internal_error("there is no memory to pack a reducescatter");
    }
    pack_scatter(batch_, comm_.size, sent);
    from = sent;
  }
  return check(world_.api().ireduce_scatter(
                   from, to, counts.data(), type(),
                   world_.reductions().operation(sum_dtype(batch_), batch_.reduce_op), comm_.comm,
                   next_request()),
               "MPI_Ireduce_scatter");
}

Status MpiBatch::allgather() {
  std::vector<int>& counts = memory_->counts = ints_of(gather_counts(batch_, comm_.size));
  std::vector<int>& offsets = memory_->offsets;
  offsets.assign(counts.size(), 0);
  for (size_t i = 1; i < counts.size(); ++i) offsets[i] = offsets[i - 1] + counts[i - 1];
  direct_ = may_use_tensors() && batch_.tensor_count == 1;
  const void* from = batch_.tensors[0].input;
  void* to = batch_.tensors[0].output;
  const int own = counts[static_cast<size_t>(comm_.index)];
  if (!direct_) {
    std::byte* sent = room(&memory_->sent, own);
    to = room(&memory_->received, offsets.back() + counts.back());
    if (sent == nullptr || to == nullptr) {
      return internal_error("there is no memory to pack an allgather");
    }
    pack_gather(batch_, sent);
    from = sent;
  }
  return check(world_.api().iallgatherv(from, own, type(), to, counts.data(), offsets.data(),
                                        type(), comm_.comm, next_request()),
               "MPI_Iallgatherv");
}

// Makes one call per tensor, also on packed copies: calls of members with and without copies must match.
Status MpiBatch::broadcast() {
  direct_ = may_use_tensors();
  const bool is_root = batch_.root == comm_.index;
  std::byte* packed = nullptr;
  if (!direct_) {
    packed = room(&memory_->received, total_count(batch_));
    if (packed == nullptr) return internal_error("there is no memory to pack a broadcast");
    if (is_root) pack_gather(batch_, packed);
  }
  size_t pieces = 0;
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    pieces += static_cast<size_t>(batch_.tensors[i].count / kPiece) + 1;
  }
  memory_->requests.reserve(pieces);
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch_.tensors[i];
    const size_t bytes = static_cast<size_t>(tensor.count) * width();
    std::byte* to = direct_ ? static_cast<std::byte*>(tensor.output) : packed;
    if (!direct_) {
      packed += bytes;
    } else if (is_root && bytes > 0 && tensor.output != tensor.input) {
      std::memcpy(tensor.output, tensor.input, bytes);
    }
    for (int64_t first = 0; first < tensor.count; first += kPiece) {
      std::byte* at = to + static_cast<size_t>(first) * width();
      HVD_RETURN_IF_ERROR(
          check(world_.api().ibcast(at, static_cast<int>(std::min(kPiece, tensor.count - first)),
                                    type(), batch_.root, comm_.comm, next_request()),
                "MPI_Ibcast"));
    }
  }
  return {};
}

// Sends messages between ranks, one tensor after another: messages of a pair of ranks keep their order.
Status MpiBatch::alltoall() {
  direct_ = may_use_tensors();
  std::vector<std::vector<int64_t>> to_each, from_each;
  int64_t out = 0, in = 0;
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch_.tensors[i];
    to_each.emplace_back();
    from_each.emplace_back();
    for (int r = 0; r < comm_.size; ++r) {
      out += to_each.back().emplace_back(tensor.rank_rows[r] * tensor.row);
      in += from_each.back().emplace_back(tensor.from_rows[r] * tensor.row);
    }
  }
  std::byte *from = nullptr, *to = nullptr;
  if (!direct_) {
    from = room(&memory_->sent, out);
    to = room(&memory_->received, in);
    if (from == nullptr || to == nullptr) {
      return internal_error("there is no memory to pack an alltoall");
    }
    pack_gather(batch_, from);
  }
  for (size_t i = 0; i < to_each.size(); ++i) {
    if (direct_) {
      from = const_cast<std::byte*>(static_cast<const std::byte*>(batch_.tensors[i].input));
      to = static_cast<std::byte*>(batch_.tensors[i].output);
    }
    HVD_RETURN_IF_ERROR(exchange(from, to_each[i], to, from_each[i]));
    for (const int64_t count : to_each[i]) from += static_cast<size_t>(count) * width();
    for (const int64_t count : from_each[i]) to += static_cast<size_t>(count) * width();
  }
  return {};
}

Status MpiBatch::exchange(const std::byte* from, const std::vector<int64_t>& to_each, std::byte* to,
                          const std::vector<int64_t>& from_each) {
  const size_t element_size = width();
  const std::byte* own = nullptr;
  const std::byte* at = from;
  std::vector<std::pair<std::byte*, int64_t>> arriving;
  for (const int64_t count : from_each) {
    arriving.emplace_back(to, count);
    to += static_cast<size_t>(count) * element_size;
  }
  for (int r = 0; r < comm_.size; ++r) {
    auto [place, count] = arriving[static_cast<size_t>(r)];
    for (int64_t first = 0; r != comm_.index && first < count; first += kPiece) {
      HVD_RETURN_IF_ERROR(
          check(world_.api().irecv(place + static_cast<size_t>(first) * element_size,
                                   static_cast<int>(std::min(kPiece, count - first)), type(), r,
                                   kAlltoallTag, comm_.comm, next_request()),
                "MPI_Irecv"));
    }
  }
  for (int r = 0; r < comm_.size; ++r) {
    const int64_t count = to_each[static_cast<size_t>(r)];
    if (r == comm_.index) own = at;
    for (int64_t first = 0; r != comm_.index && first < count; first += kPiece) {
      HVD_RETURN_IF_ERROR(
          check(world_.api().isend(at + static_cast<size_t>(first) * element_size,
                                   static_cast<int>(std::min(kPiece, count - first)), type(), r,
                                   kAlltoallTag, comm_.comm, next_request()),
                "MPI_Isend"));
    }
    at += static_cast<size_t>(count) * element_size;
  }
  const auto [place, count] = arriving[static_cast<size_t>(comm_.index)];
  if (count > 0) std::memcpy(place, own, static_cast<size_t>(count) * element_size);
  return {};
}

std::optional<Status> MpiBatch::poll() {
  if (!started_.ok()) return started_;
  int all = 0;
  auto& requests = memory_->requests;
  const int code = world_.api().testall(static_cast<int>(requests.size()), requests.data(), &all,
                                        MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) return check(code, "MPI_Testall");
  if (all == 0) return std::nullopt;
  if (sum_ != nullptr && !spreads_) {
    if (Status status = spread_slice(); !status.ok()) return status;
    return std::nullopt;
  }
  over_ = true;
  finish();
  return Status();
}

void MpiBatch::finish() {
  switch (batch_.op) {
    case HVD_ALLREDUCE:
      if (!direct_) {
        unpack_reduce(batch_, received());
      } else {
        void* output = batch_.tensors[0].output;
        scale(output, output, batch_.dtype, batch_.tensors[0].count,
              collectives::scale_after(batch_));
      }
      break;
    case HVD_REDUCESCATTER:
      unpack_scatter(
          batch_, comm_.index, comm_.size,
          direct_ ? static_cast<const std::byte*>(batch_.tensors[0].output) : received());
      break;
    case HVD_ALLGATHER:
      if (!direct_) unpack_gather(batch_, comm_.size, received());
      break;
    default:
      if (!direct_) unpack_whole(batch_, comm_.size, received());
      break;
  }
}

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
