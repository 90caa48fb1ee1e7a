// Adasum of any number of members, tensor by tensor. Pairs of vectors are combined along a binary tree over the
// bits of the members' indices, low to high: orthogonal vectors are added, and parallel ones averaged. If the
// number of members is not a power of two, a vector without a partner enters the next level unchanged: a full tree
// with zeros for the missing members gives the same result.
//
// Every member receives its part of all vectors (an alltoall), takes part in the dot products and norms of each
// level (a small allreduce in float64), combines its part, and sends the result to all members (an allgather). For
// each element, only one member computes, in float64 on all levels, and rounds once, at the end. Every member moves
// twice the bytes of the batch, as in an allreduce, for any number of hosts.
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "collectives/algorithms/collectives.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/kernels/reduction.h"

namespace hvd::collectives {
namespace {

class Adasum {
 public:
  Adasum(Group& group, const hvd_batch& batch)
      : members_(group.size()),
        dtype_(static_cast<hvd_dtype>(batch.dtype)),
        element_(size_of(dtype_)),
        // A common factor of all inputs multiplies the result of Adasum, so prescale and postscale apply to the result.
        factor_(batch.prescale * batch.postscale),
        tensors_(batch.tensor_count) {
    size_t counts = 0, accumulated = 0;
    rows_.reserve(2 * members_ * tensors_.size());
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const auto count = static_cast<size_t>(batch.tensors[t].count);
      tensors_[t].rows = rows_.size();
      for (size_t m = 0; m < members_; ++m) {
        rows_.push_back(static_cast<int64_t>(scattered_rows(count, members_, m).count));
      }
      Part& part = tensors_[t];
      part.count = static_cast<size_t>(rows_[part.rows + group.index()]);
      part.stored = counts;
      part.accumulator = accumulated;
      counts += members_ * part.count;
      accumulated += (members_ + 1) / 2 * part.count;
    }
    own_rows_.reserve(members_ * tensors_.size());
    stored_ = std::make_unique_for_overwrite<std::byte[]>(counts * element_);
    accumulators_ = std::make_unique_for_overwrite<double[]>(accumulated);
    products_.resize(members_ / 2 * tensors_.size());
    for (const Part& part : tensors_) own_rows_.insert(own_rows_.end(), members_, part.count);
    fill_batches(batch);
  }

  const hvd_batch& scatter() const { return scatter_; }
  const hvd_batch& gather() const { return gather_; }
  // Returns the products of one level, three numbers each; an allreduce sums them over the members.
  std::span<Products> products() { return {products_.data(), vectors_ / 2 * tensors_.size()}; }

  bool one_is_left() const { return vectors_ == 1; }
  void multiply() {
    Products* next = products_.data();
    for (const Part& part : tensors_) {
      for (size_t pair = 0; pair < vectors_ / 2; ++pair) {
        *next++ =
            products_of(type(), vector(part, 2 * pair), vector(part, 2 * pair + 1), part.count);
      }
    }
  }
  void combine_pairs() {
    const Products* next = products_.data();
    for (const Part& part : tensors_) {
      for (size_t pair = 0; pair < vectors_ / 2; ++pair) {
        combine(type(), vector(part, 2 * pair), vector(part, 2 * pair + 1), weights_of(*next++),
                accumulator(part, pair), part.count);
      }
      if (vectors_ % 2 == 1) {
        to_float64(type(), vector(part, vectors_ - 1), accumulator(part, vectors_ / 2), part.count);
      }
    }
    vectors_ = (vectors_ + 1) / 2;
    is_accumulated_ = true;
  }
  // Rounds the result to the storage type, into the front of stored_, for the allgather.
  void round() {
    for (const Part& part : tensors_) {
      if (!is_accumulated_) to_float64(dtype_, vector(part, 0), accumulator(part, 0), part.count);
      to_storage_type(dtype_, accumulator(part, 0), factor_, stored(part, 0), part.count);
    }
  }

 private:
  // This member's parts of one tensor: one part from each member's vector, one after another.
  struct Part {
    size_t rows;         // index into rows_
    size_t count;        // elements of one vector's part
    size_t stored;       // elements before this part in stored_
    size_t accumulator;  // elements before this part in accumulators_
  };

  std::byte* stored(const Part& part, size_t v) {
    return stored_.get() + (part.stored + v * part.count) * element_;
  }
  double* accumulator(const Part& part, size_t v) {
    return accumulators_.get() + part.accumulator + v * part.count;
  }
  hvd_dtype type() const { return is_accumulated_ ? HVD_FLOAT64 : dtype_; }
  const void* vector(const Part& part, size_t v) {
    if (is_accumulated_) return accumulator(part, v);
    return stored(part, v);
  }

  void fill_batches(const hvd_batch& batch) {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const hvd_batch_tensor& whole = batch.tensors[t];
      const int64_t* rows = rows_.data() + tensors_[t].rows;
      const auto count = static_cast<int64_t>(tensors_[t].count);
      std::byte* parts = stored(tensors_[t], 0);
      scattered_.push_back(
          {whole.input, parts, whole.count, 1, rows, own_rows_.data() + t * members_});
      gathered_.push_back({parts, whole.output, count, 1, rows, nullptr});
    }
    scatter_ = gather_ = batch;
    scatter_.op = HVD_ALLTOALL;
    scatter_.tensors = scattered_.data();
    gather_.op = HVD_ALLGATHER;
    gather_.tensors = gathered_.data();
  }

  const size_t members_;
  const hvd_dtype dtype_;
  const size_t element_;
  const double factor_;
  size_t vectors_ = members_;    // vectors that are not yet combined
  bool is_accumulated_ = false;  // the vectors lie in accumulators_
  std::vector<Part> tensors_;
  std::vector<int64_t> rows_, own_rows_;
  std::unique_ptr<std::byte[]> stored_;
  std::unique_ptr<double[]> accumulators_;
  std::vector<Products> products_;
  std::vector<hvd_batch_tensor> scattered_, gathered_;
  hvd_batch scatter_{}, gather_{};
};

}  // namespace

Coroutine adasum(Flow& flow, Group& group, const hvd_batch& batch) {
  Adasum work(group, batch);
  co_await alltoall(flow, group, work.scatter());
  while (!work.one_is_left()) {
    work.multiply();
    const std::span<Products> products = work.products();
    SmallAllreduce sums(HVD_SUM, HVD_FLOAT64, products.data(), 3 * products.size(),
                        work.scatter().tuning);
    co_await allreduce(flow, group, sums.batch());
    work.combine_pairs();
  }
  work.round();
  co_await allgather(flow, group, work.gather());
}

}  // namespace hvd::collectives
