#include "runtime/executor.h"

#include <cstddef>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// Batches that an op plugin is given at a time.
constexpr size_t kRunning = 1;

// Rows of dimension 0 that a rank gets of a reducescatter: the first ranks get one more.
int64_t share_of(int64_t rows, int32_t rank, int32_t size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

}  // namespace

std::unique_ptr<Executor::Run> Executor::make_run() {
  std::unique_ptr<Run> run;
  if (spare_.empty()) {
    run = std::make_unique<Run>();
    run->executor = this;
  } else {
    run = std::move(spare_.back());
    spare_.pop_back();
    run->tensors.clear();
    run->member.clear();
    run->owner.clear();
    run->submissions.clear();
    run->rows.clear();
    run->done = false;
    run->traced = 0;
    run->status = {};
  }
  return run;
}

void Executor::add(uint64_t sequence, std::span<const PlanUnit> units,
                   std::span<const AgreedItem> items) {
  std::unique_ptr<Run> run = make_run();
  const Submission& first = *items[units.front().item].submission;
  const Request& request = first.request;
  hvd_batch& batch = run->batch;
  batch = {};
  batch.struct_size = sizeof batch;
  batch.sequence = sequence;
  batch.op = request.op;
  batch.reduce_op = request.reduce_op == HVD_AVERAGE ? HVD_SUM : request.reduce_op;
  batch.dtype = units.front().dtype;
  batch.device = request.device;
  batch.process_set = first.process_set;
  batch.root = request.root;
  batch.prescale = request.prescale;
  batch.postscale = request.postscale;
  if (request.reduce_op == HVD_AVERAGE) batch.postscale /= size_;
  if (tuning_) {
    run->tuning = *tuning_;
    batch.tuning = &run->tuning;
  }
  for (const PlanUnit& unit : units) {
    const AgreedItem& item = items[unit.item];
    run->submissions.push_back(item.submission);
    add_tensors(run.get(), item.submission, unit.dtype, item.rows);
  }
  batch.tensor_count = static_cast<uint32_t>(run->tensors.size());
  queue_.push_back(std::move(run));
}

void Executor::add_tensors(Run* run, Submission* submission, int32_t dtype,
                           const std::vector<RankRows>* all) {
  const Request& request = submission->request;
  const auto members = static_cast<size_t>(size_);
  if (all != nullptr && has_rank_rows(request.op)) {
    // Room for all of them first: what was handed out must not move. Such batches are not fused.
    run->rows.reserve(2 * members * request.tensors.size());
  }
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& spec = request.tensors[i];
    if (spec.dtype != dtype) continue;
    hvd_batch_tensor tensor{};
    tensor.input = submission->tensors[i].input;
    tensor.output = submission->tensors[i].output;
    tensor.count = spec.count();
    tensor.row = spec.row();
    if (all != nullptr && has_rank_rows(request.op)) {
      const bool to_each = request.op == HVD_ALLTOALL;
      tensor.rank_rows = run->rows.data() + run->rows.size();
      for (size_t r = 0; r < members; ++r) {
        run->rows.push_back(to_each ? (*all)[rank_].rows[r] : (*all)[r].rows[i]);
      }
      if (to_each) {
        tensor.from_rows = run->rows.data() + run->rows.size();
        for (size_t r = 0; r < members; ++r) run->rows.push_back((*all)[r].rows[rank_]);
      }
    }
    run->tensors.push_back(tensor);
    run->member.push_back(static_cast<uint32_t>(i));
    run->owner.push_back(submission);
  }
}

Result<bool> Executor::advance() {
  bool moved = false;
  while (!queue_.empty() && running_.size() < kRunning) {
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    moved = true;
    HVD_RETURN_IF_ERROR(start(running_.back().get()));
    if (!running_.back()->done) break;
    if (running_.size() > 1) continue;
    std::unique_ptr<Run> run = std::move(running_.front());
    running_.pop_front();
    if (!run->status.ok()) return run->status;
    finish(run.get(), {});
    spare_.push_back(std::move(run));
  }
  if (running_.empty()) return moved;
  for (const OpenedPlugin& op : ops_->all()) {
    int32_t progressed = 0;
    const int code = op.vtable<hvd_op_v1>().poll(op.context(), &progressed);
    if (progressed != 0) moved = true;
    if (code != HVD_OK && !running_.front()->done) {
      return Status(static_cast<Code>(code), cat("the operation plugin ", op.record().name,
                                                 " failed"));
    }
  }
  while (!running_.empty() && running_.front()->done) {
    std::unique_ptr<Run> run = std::move(running_.front());
    running_.pop_front();
    moved = true;
    if (!run->status.ok()) return run->status;
    finish(run.get(), {});
    spare_.push_back(std::move(run));
  }
  return moved;
}

bool Executor::has_work(const Run& run) const {
  for (size_t i = 0; i < run.tensors.size(); ++i) {
    const hvd_batch_tensor& tensor = run.tensors[i];
    if (run.batch.op == HVD_ALLGATHER || run.batch.op == HVD_ALLTOALL) {
      // What all ranks bring counts, since all must judge alike.
      if (run.batch.op == HVD_ALLTOALL) return true;
      if (tensor.row > 0 &&
          std::accumulate(tensor.rank_rows, tensor.rank_rows + size_, int64_t{0}) > 0) {
        return true;
      }
    } else if (tensor.count > 0) {
      return true;
    }
  }
  return false;
}

void Executor::measure(Run* run) {
  uint64_t elements = 0;
  for (const hvd_batch_tensor& tensor : run->tensors) elements += static_cast<uint64_t>(tensor.count);
  instruments_->metrics.batch(run->tensors.size(), elements * dtype_size(run->batch.dtype),
                              fusion_threshold_);
  run->traced = instruments_->trace.start_batch(run->batch.op, run->batch.dtype, run->submissions);
}

// The plugin's own word for it, or its name and the operation's.
void Executor::trace_run(const OpenedPlugin& op, const Run& run) {
  const auto& vtable = op.vtable<hvd_op_v1>();
  const char* name = nullptr;
  if (vtable.struct_size >= offsetof(hvd_op_v1, activity) + sizeof vtable.activity &&
      vtable.activity != nullptr) {
    name = vtable.activity(op.context(), &run.batch);
  }
  instruments_->trace.activity(run.traced, name != nullptr ? name : op.record().name);
}

Status Executor::start(Run* run) {
  measure(run);
  if (Status status = make_outputs(run); !status.ok()) return status;
  run->batch.tensors = run->tensors.data();
  if (!has_work(*run)) {
    run->done = true;
    return {};
  }
  const OpenedPlugin* op = ops_->select(run->batch);
  if (op == nullptr) {
    // Every rank finds the same, so the work fails and the runtime goes on.
    const hvd_batch& batch = run->batch;
    const bool reduces = batch.op == HVD_ALLREDUCE || batch.op == HVD_REDUCESCATTER;
    finish(run, unimplemented(cat(
        "no operation plugin here runs ", op_name(batch.op),
        reduces ? cat(" (", reduce_op_name(batch.reduce_op), ")") : std::string(), " of ",
        dtype_name(batch.dtype), " on ", batch.device == HVD_CPU ? "the CPU" : "this device",
        "; convert the tensor, or add a plugin that does")));
    run->submissions.clear();
    run->done = true;
    return {};
  }
  if (run->traced != 0) trace_run(*op, *run);
  const int code = op->vtable<hvd_op_v1>().run(op->context(), &run->batch, &on_done, run);
  if (code != HVD_OK && !run->done) {
    return Status(static_cast<Code>(code),
                  cat("the operation plugin ", op->record().name, " did not start ",
                      op_name(run->batch.op)));
  }
  return {};
}

Status Executor::make_outputs(Run* run) {
  const int32_t op = run->batch.op;
  if (!has_rank_rows(op) && op != HVD_REDUCESCATTER) return {};
  instruments_->trace.activity(run->traced, "ALLOCATE_OUTPUT");
  for (size_t i = 0; i < run->tensors.size(); ++i) {
    hvd_batch_tensor& tensor = run->tensors[i];
    Submission& owner = *run->owner[i];
    const TensorSpec& spec = owner.request.tensors[run->member[i]];
    int64_t rows = 0;
    if (op == HVD_ALLGATHER) {
      rows = std::accumulate(tensor.rank_rows, tensor.rank_rows + size_, int64_t{0});
    } else if (op == HVD_ALLTOALL) {
      rows = std::accumulate(tensor.from_rows, tensor.from_rows + size_, int64_t{0});
      owner.received_splits.assign(tensor.from_rows, tensor.from_rows + size_);
    } else {
      rows = share_of(spec.shape.empty() ? 1 : spec.shape[0], rank_, size_);
    }
    if (owner.outputs.size() < owner.tensors.size()) owner.outputs.resize(owner.tensors.size());
    Submission::Output& output = owner.outputs[run->member[i]];
    output.shape = spec.shape;
    if (output.shape.empty()) output.shape.push_back(0);
    output.shape[0] = rows;
    const auto bytes = static_cast<size_t>(rows * tensor.row) * dtype_size(spec.dtype);
    if (bytes > 0) {
      output.data.reset(new (std::nothrow) std::byte[bytes]);
      if (!output.data) {
        return internal_error(cat("rank ", rank_, " has no memory for the ", bytes,
                                  " bytes of the result of ", op_name(op)));
      }
    }
    tensor.output = output.data.get();
  }
  instruments_->trace.activity(run->traced, nullptr);
  return {};
}

void Executor::finish(Run* run, const Status& status) {
  instruments_->trace.end_batch(run->traced);
  for (Submission* submission : run->submissions) {
    if (!status.ok() && submission->status.ok()) submission->status = status;
    if (--submission->units_left == 0) sink_->complete(submission, submission->status);
  }
}

void Executor::on_done(void* argument, int status, const char* error) {
  Run* run = static_cast<Run*>(argument);
  HVD_CHECK(!run->done);
  run->done = true;
  if (status != HVD_OK) {
    run->status = Status(static_cast<Code>(status),
                         error != nullptr ? error : "an operation failed without a reason");
  }
}

void Executor::abort(const char* cause) {
  for (const OpenedPlugin& op : ops_->all()) op.vtable<hvd_op_v1>().abort(op.context(), cause);
}

}  // namespace hvd::runtime
