#include "ops/mpi/batch.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/text.h"
#include "ops/common/batch_memory.h"

namespace hvd::ops::mpi {
namespace {

constexpr int kAlltoallTag = 1;

std::vector<int> ints_of(const std::vector<int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

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
    world_.buffers().give(std::move(sent_));
    world_.buffers().give(std::move(received_));
    return;
  }
  world_.fail();
  // MPI may still read and write there.
  static_cast<void>(sent_.bytes.release());
  static_cast<void>(received_.bytes.release());
  static_cast<void>(std::make_unique<std::vector<MPI_Request>>(std::move(requests_)).release());
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
  return &requests_.emplace_back(world_.api().handles.no_request);
}

Status MpiBatch::start() {
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
  direct_ = is_direct(batch_);
  const int64_t total = total_count(batch_);
  const void* from = MPI_IN_PLACE;
  std::byte* to = nullptr;
  if (direct_) {
    const hvd_batch_tensor& tensor = batch_.tensors[0];
    to = static_cast<std::byte*>(tensor.output);
    if (batch_.prescale != 1 && batch_.dtype != HVD_BOOL) {
      scale(to, tensor.input, batch_.dtype, total, batch_.prescale);
    } else if (tensor.input != tensor.output) {
      from = tensor.input;
    }
  } else {
    to = room(&received_, total);
    if (to == nullptr) return internal_error("there is no memory to pack an allreduce");
    pack_reduce(batch_, to);
  }
  if (goes_by_slices(total)) {
    sum_ = to;
    summand_ = from == MPI_IN_PLACE ? to : static_cast<const std::byte*>(from);
    total_ = total;
    return send_slices();
  }
  requests_.reserve(static_cast<size_t>(total / kPiece) + 1);
  for (int64_t first = 0; first < total; first += kPiece) {
    const size_t offset = static_cast<size_t>(first) * width();
    HVD_RETURN_IF_ERROR(
        check(world_.api().iallreduce(
                  from == MPI_IN_PLACE ? from : static_cast<const std::byte*>(from) + offset,
                  to + offset, static_cast<int>(std::min(kPiece, total - first)),
                  world_.reductions().type(batch_.dtype),
                  world_.reductions().operation(batch_.dtype, batch_.reduce_op), comm_.comm,
                  next_request()),
              "MPI_Iallreduce"));
  }
  return {};
}

Status MpiBatch::reducescatter() {
  const std::vector<int> counts = ints_of(scatter_counts(batch_, comm_.size));
  direct_ = is_direct(batch_) && batch_.tensors[0].input != batch_.tensors[0].output &&
            (batch_.prescale == 1 || batch_.dtype == HVD_BOOL);
  const void* from = batch_.tensors[0].input;
  void* to = batch_.tensors[0].output;
  if (!direct_) {
    std::byte* packed = room(&sent_, total_count(batch_));
    to = room(&received_, counts[static_cast<size_t>(comm_.index)]);
    if (packed == nullptr || to == nullptr) {
      return internal_error("there is no memory to pack a reducescatter");
    }
    pack_scatter(batch_, comm_.size, packed);
    from = packed;
  }
  return check(
      world_.api().ireduce_scatter(from, to, counts.data(), world_.reductions().type(batch_.dtype),
                                   world_.reductions().operation(batch_.dtype, batch_.reduce_op),
                                   comm_.comm, next_request()),
      "MPI_Ireduce_scatter");
}

Status MpiBatch::allgather() {
  const std::vector<int> counts = ints_of(gather_counts(batch_, comm_.size));
  std::vector<int> offsets(counts.size(), 0);
  for (size_t i = 1; i < counts.size(); ++i) offsets[i] = offsets[i - 1] + counts[i - 1];
  direct_ = batch_.tensor_count == 1;
  const void* from = batch_.tensors[0].input;
  void* to = batch_.tensors[0].output;
  const int own = counts[static_cast<size_t>(comm_.index)];
  if (!direct_) {
    std::byte* packed = room(&sent_, own);
    to = room(&received_, offsets.back() + counts.back());
    if (packed == nullptr || to == nullptr) {
      return internal_error("there is no memory to pack an allgather");
    }
    pack_gather(batch_, packed);
    from = packed;
  }
  const MPI_Datatype type = world_.reductions().type(batch_.dtype);
  return check(world_.api().iallgatherv(from, own, type, to, counts.data(), offsets.data(), type,
                                        comm_.comm, next_request()),
               "MPI_Iallgatherv");
}

Status MpiBatch::broadcast() {
  const bool is_root = batch_.root == comm_.index;
  size_t pieces = 0;
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    pieces += static_cast<size_t>(batch_.tensors[i].count / kPiece) + 1;
  }
  requests_.reserve(pieces);
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch_.tensors[i];
    const size_t bytes = static_cast<size_t>(tensor.count) * width();
    if (is_root && bytes > 0 && tensor.output != tensor.input) {
      std::memcpy(tensor.output, tensor.input, bytes);
    }
    for (int64_t first = 0; first < tensor.count; first += kPiece) {
      auto* at = static_cast<std::byte*>(tensor.output) + static_cast<size_t>(first) * width();
      HVD_RETURN_IF_ERROR(
          check(world_.api().ibcast(at, static_cast<int>(std::min(kPiece, tensor.count - first)),
                                    world_.reductions().type(batch_.dtype), batch_.root, comm_.comm,
                                    next_request()),
                "MPI_Ibcast"));
    }
  }
  return {};
}

// Tensor by tensor, from rank to rank: messages of a pair keep their order.
Status MpiBatch::alltoall() {
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch_.tensors[i];
    std::vector<int64_t> to_each, from_each;
    for (int r = 0; r < comm_.size; ++r) {
      to_each.push_back(tensor.rank_rows[r] * tensor.row);
      from_each.push_back(tensor.from_rows[r] * tensor.row);
    }
    HVD_RETURN_IF_ERROR(exchange(static_cast<const std::byte*>(tensor.input), to_each,
                                 static_cast<std::byte*>(tensor.output), from_each));
  }
  return {};
}

Status MpiBatch::exchange(const std::byte* from, const std::vector<int64_t>& to_each, std::byte* to,
                          const std::vector<int64_t>& from_each) {
  const size_t wide = width();
  const MPI_Datatype type = world_.reductions().type(batch_.dtype);
  const std::byte* own = nullptr;
  const std::byte* at = from;
  std::vector<std::pair<std::byte*, int64_t>> arriving;
  for (const int64_t count : from_each) {
    arriving.emplace_back(to, count);
    to += static_cast<size_t>(count) * wide;
  }
  for (int r = 0; r < comm_.size; ++r) {
    auto [place, count] = arriving[static_cast<size_t>(r)];
    for (int64_t first = 0; r != comm_.index && first < count; first += kPiece) {
      HVD_RETURN_IF_ERROR(
          check(world_.api().irecv(place + static_cast<size_t>(first) * wide,
                                   static_cast<int>(std::min(kPiece, count - first)), type, r,
                                   kAlltoallTag, comm_.comm, next_request()),
                "MPI_Irecv"));
    }
  }
  for (int r = 0; r < comm_.size; ++r) {
    const int64_t count = to_each[static_cast<size_t>(r)];
    if (r == comm_.index) own = at;
    for (int64_t first = 0; r != comm_.index && first < count; first += kPiece) {
      HVD_RETURN_IF_ERROR(
          check(world_.api().isend(at + static_cast<size_t>(first) * wide,
                                   static_cast<int>(std::min(kPiece, count - first)), type, r,
                                   kAlltoallTag, comm_.comm, next_request()),
                "MPI_Isend"));
    }
    at += static_cast<size_t>(count) * wide;
  }
  const auto [place, count] = arriving[static_cast<size_t>(comm_.index)];
  if (count > 0) std::memcpy(place, own, static_cast<size_t>(count) * wide);
  return {};
}

std::optional<Status> MpiBatch::poll() {
  int all = 0;
  const int code = world_.api().testall(static_cast<int>(requests_.size()), requests_.data(), &all,
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
        unpack_reduce(batch_, received_.bytes.get());
      } else {
        void* output = batch_.tensors[0].output;
        scale(output, output, batch_.dtype, batch_.tensors[0].count, batch_.postscale);
      }
      break;
    case HVD_REDUCESCATTER:
      unpack_scatter(batch_, comm_.index, comm_.size,
                     direct_ ? static_cast<const std::byte*>(batch_.tensors[0].output)
                             : received_.bytes.get());
      break;
    case HVD_ALLGATHER:
      if (!direct_) unpack_gather(batch_, comm_.size, received_.bytes.get());
      break;
    default:
      break;
  }
}

}  // namespace hvd::ops::mpi
