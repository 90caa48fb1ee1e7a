// The request of one rank: the part of a submission that the ranks must agree on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/operations/op_traits.h"
#include "base/status.h"
#include "horovod/types.h"

namespace hvd::runtime {

// Internal operations of the runtime, in addition to hvd_op_kind. They add and remove process sets, in the same order
// on every rank.
constexpr int32_t kAddProcessSets = 64;    // splits: the size and the ranks of each set
constexpr int32_t kRemoveProcessSet = 65;  // root: the set's id
// Adds or removes a named set, which only its members announce. `splits`: as for kAddProcessSets, for one set.
constexpr int32_t kAddNamedSet = 66;
constexpr int32_t kRemoveNamedSet = 67;
constexpr bool is_of_members(int32_t op) { return op == kAddNamedSet || op == kRemoveNamedSet; }
constexpr bool is_registration(int32_t op) {
  return op == kAddProcessSets || op == kRemoveProcessSet || is_of_members(op);
}

// The name of an HVD_JOIN request, since users give it none.
constexpr std::string_view kJoinName = "<join>";

struct TensorSpec {
  int32_t dtype = HVD_FLOAT32;
  std::vector<int64_t> shape;

  int64_t count() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
  // Returns the number of elements of one row of dimension 0.
  int64_t row() const {
    int64_t product = 1;
    for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
    return product;
  }
  bool operator==(const TensorSpec&) const = default;
};

// The device of a request whose tensors are host copies of device tensors (HVD_STAGED).
constexpr int32_t kStagedDevice = -3;

struct Request {
  int32_t op = HVD_ALLREDUCE;
  int32_t reduce_op = HVD_SUM;  // the user's value: HVD_AVERAGE stays HVD_AVERAGE here
  int32_t root = 0;             // global rank
  int32_t device = HVD_CPU;     // or an ordinal, or kStagedDevice
  double prescale = 1;
  double postscale = 1;
  std::vector<TensorSpec> tensors;  // several: a group, which runs completely or not at all
  std::vector<int32_t> splits;      // alltoall: rows to each member of the process set
  // The reason why a rank refuses its user's submission, announced so that the submission fails on all ranks.
  std::string refusal;

  bool is_on_device() const { return device >= 0; }
  bool operator==(const Request&) const = default;
};

constexpr bool has_rank_rows(int32_t op) { return traits_of(op).row_counts != RowCounts::kNone; }
constexpr bool reduces(int32_t op) { return traits_of(op).reduces; }

// The rows of one rank. allgather: rows of each tensor; alltoall: rows to each rank.
struct RankRows {
  int32_t rank = 0;
  std::vector<int64_t> rows;
  bool operator==(const RankRows&) const = default;
};
// Returns the rows of the request; empty for an operation without rows.
std::vector<int64_t> rows_of(const Request& request);

// Returns 0 if the number is not an hvd_dtype.
size_t dtype_size(int32_t dtype);
std::string_view dtype_name(int32_t dtype);
std::string_view op_name(int32_t op);
// Returns, for example, "allreduce 'grad.0'", or "barrier" without its internal name.
std::string operation_text(int32_t op, std::string_view name);
// Returns, for example, "send to rank 3, tag 7" or "recv from any rank, tag 7".
std::string message_text(int32_t op, int32_t peer, int32_t tag);
// put_set() adds one process set to a request that adds sets; sets_of() returns all sets of a request.
void put_set(const std::vector<int32_t>& ranks, Request* request);
std::vector<std::vector<int32_t>> sets_of(const Request& request);
// Returns the ranks that announce a request for a named set, ascending.
std::span<const int32_t> announcers_of(const Request& request);
// Returns, for example, "[2, 3]".
std::string list_text(std::span<const int64_t> numbers);
std::string list_text(std::span<const int32_t> numbers);
std::string_view reduce_op_name(int32_t reduce_op);

// Encode and decode requests in messages, for new names or new requests. get_request() checks dtypes and shapes,
// get_rows() rejects negative numbers; the reader's finish() reports a message that is cut short or too long.
void put_request(const Request& request, ByteWriter& out);
Status get_request(ByteReader& in, Request* request);
void put_rows(const std::vector<RankRows>& all, ByteWriter& out);
Status get_rows(ByteReader& in, std::vector<RankRows>* all);

}  // namespace hvd::runtime
