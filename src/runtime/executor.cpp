#include "runtime/executor.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "runtime/executor_run.h"

namespace hvd::runtime {
namespace {

// Batches of one process set that an op plugin is given at a time, so that it can fill one while
// it empties another.
constexpr size_t kRunning = 2;

// Rows of dimension 0 that a rank gets of a reducescatter: the first ranks get one more.
int64_t share_of(int64_t rows, int32_t rank, int32_t size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

int64_t sum_of(const int64_t* rows, int32_t size) {
  return std::accumulate(rows, rows + size, int64_t{0});
}

bool has_own_output(int32_t op) { return has_rank_rows(op) || op == HVD_REDUCESCATTER; }

}  // namespace

Executor::Executor(uint64_t fusion_threshold, OpSelector* ops, CompletionSink* sink,
                   Instruments* instruments)
    : fusion_threshold_(fusion_threshold), ops_(ops), sink_(sink), instruments_(instruments) {}
Executor::~Executor() = default;

void Executor::Run::clear() {
  op = nullptr;
  tensors.clear();
  member.clear();
  owner.clear();
  submissions.clear();
  rows.clear();
  ready.clear();
  made.clear();
  done = false;
  traced = 0;
  status = {};
}

Status Executor::open_lane(std::shared_ptr<const SetMembers> set, Lane** lane) {
  HVD_RETURN_IF_ERROR(ops_->new_set(set->id, set->ranks));
  lanes_.push_back(std::make_unique<Lane>(std::move(set)));
  *lane = lanes_.back().get();
  return {};
}

Status Executor::close_lane(Lane* lane) {
  HVD_CHECK(idle(*lane));
  HVD_RETURN_IF_ERROR(ops_->drop_set(lane->set->id));
  std::erase_if(lanes_, [lane](const auto& one) { return one.get() == lane; });
  return {};
}

size_t Executor::outstanding(const Lane& lane) const {
  return lane.queue.size() + lane.running.size();
}

std::unique_ptr<Executor::Run> Executor::make_run() {
  if (spare_.empty()) return std::make_unique<Run>();
  std::unique_ptr<Run> run = std::move(spare_.back());
  spare_.pop_back();
  run->clear();
  return run;
}

std::unique_ptr<Executor::Run> Executor::make_run(Lane* lane, std::span<const PlanUnit> units,
                                                  std::span<const AgreedItem> items) {
  std::unique_ptr<Run> run = make_run();
  describe(run.get(), lane, *items[units.front().item].request, units.front().dtype);
  if (has_rank_rows(run->batch.op)) {
    // Room for all of them first: what was handed out must not move.
    size_t tensors = 0;
    for (const PlanUnit& unit : units) tensors += items[unit.item].request->tensors.size();
    run->rows.reserve(2 * lane->set->ranks.size() * tensors);
  }
  for (const PlanUnit& unit : units) {
    const AgreedItem& item = items[unit.item];
    if (item.submission != nullptr) run->submissions.push_back(item.submission);
    add_tensors(run.get(), *lane, item, unit.dtype);
  }
  if (run->batch.device != HVD_CPU) add_devices(run.get());
  run->batch.tensors = run->tensors.data();
  run->batch.tensor_count = static_cast<uint32_t>(run->tensors.size());
  run->op = ops_->select(run->batch);
  return run;
}

void Executor::add(Lane* lane, std::span<const PlanUnit> units,
                   std::span<const AgreedItem> items) {
  std::unique_ptr<Run> run = make_run(lane, units, items);
  if (run->op == nullptr && units.size() > 1) {
    // What no plugin runs together, each may run alone; every rank finds the same.
    spare_.push_back(std::move(run));
    for (const PlanUnit& unit : units) add(lane, {&unit, 1}, items);
    return;
  }
  run->batch.sequence = lane->next_sequence++;
  ++outstanding_;
  lane->queue.push_back(std::move(run));
}

void Executor::describe(Run* run, Lane* lane, const Request& request, int32_t dtype) {
  hvd_batch& batch = run->batch;
  batch = {};
  batch.struct_size = sizeof batch;
  batch.op = request.op;
  batch.reduce_op = request.reduce_op == HVD_AVERAGE ? HVD_SUM : request.reduce_op;
  batch.dtype = dtype;
  batch.device = request.device;
  batch.process_set = lane->set->id;
  batch.root = request.op == HVD_BROADCAST ? lane->set->index_of(request.root) : 0;
  batch.prescale = request.prescale;
  batch.postscale = request.postscale;
  if (request.reduce_op == HVD_AVERAGE) batch.postscale /= lane->set->size();
  run->tuning = batch.process_set == 0 ? tuning_ : others_tuning_;
  batch.tuning = &run->tuning;
}

// What is on this rank's device, and since when; of a rank that has joined, nothing is.
void Executor::add_devices(Run* run) {
  for (const Submission* owner : run->owner) {
    run->ready.push_back(owner == nullptr ? nullptr : owner->ready_event);
  }
  run->made.assign(run->owner.size(), nullptr);
  run->batch.ready_events = run->ready.data();
  run->batch.made_outputs = run->made.data();
  const auto own = std::find_if(run->owner.begin(), run->owner.end(),
                                [](const Submission* one) { return one != nullptr; });
  if (own == run->owner.end()) return;
  run->batch.device = (*own)->request.device;
  run->batch.stream = (*own)->stream;
}

void Executor::add_tensors(Run* run, const Lane& lane, const AgreedItem& item, int32_t dtype) {
  const Request& request = *item.request;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& spec = request.tensors[i];
    if (spec.dtype != dtype) continue;
    hvd_batch_tensor tensor{};
    if (item.submission != nullptr) {
      tensor.input = item.submission->tensors[i].input;
      tensor.output = item.submission->tensors[i].output;
    }
    tensor.count = spec.count();
    tensor.row = spec.row();
    if (has_rank_rows(request.op)) add_rows(run, lane, item, i, &tensor);
    run->tensors.push_back(tensor);
    run->member.push_back(static_cast<uint32_t>(i));
    run->owner.push_back(item.submission);
  }
}

void Executor::add_rows(Run* run, const Lane& lane, const AgreedItem& item, size_t tensor,
                        hvd_batch_tensor* to) {
  const auto members = lane.set->ranks.size();
  const auto mine = static_cast<size_t>(lane.set->index);
  const std::vector<RankRows>& all = *item.rows;
  const bool to_each = item.request->op == HVD_ALLTOALL;
  to->rank_rows = run->rows.data() + run->rows.size();
  for (size_t r = 0; r < members; ++r) {
    run->rows.push_back(to_each ? all[mine].rows[r] : all[r].rows[tensor]);
  }
  if (!to_each) return;
  to->from_rows = run->rows.data() + run->rows.size();
  for (size_t r = 0; r < members; ++r) run->rows.push_back(all[r].rows[mine]);
}

Result<bool> Executor::advance() {
  if (outstanding_ == 0) return false;
  bool moved = false;
  bool running = false;
  for (const auto& lane : lanes_) {
    auto started = advance(lane.get());
    if (!started.ok()) return started;
    moved |= started.value();
    running |= !lane->running.empty();
  }
  if (!running) return moved;
  HVD_RETURN_IF_ERROR(poll_plugins(&moved));
  for (const auto& lane : lanes_) HVD_RETURN_IF_ERROR(retire(lane.get(), &moved));
  return moved;
}

Result<bool> Executor::advance(Lane* lane) {
  bool moved = false;
  while (!lane->queue.empty() && lane->running.size() < kRunning) {
    lane->running.push_back(std::move(lane->queue.front()));
    lane->queue.pop_front();
    moved = true;
    HVD_RETURN_IF_ERROR(start(lane, lane->running.back().get()));
    HVD_RETURN_IF_ERROR(retire(lane, &moved));
  }
  return moved;
}

Status Executor::poll_plugins(bool* moved) {
  for (const OpenedPlugin& op : ops_->all()) {
    int32_t progressed = 0;
    const int code = op.vtable<hvd_op_v1>().poll(op.context(), &progressed);
    if (progressed != 0) *moved = true;
    if (code == HVD_OK) continue;
    const bool all_done = std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
      return lane->running.empty() || lane->running.front()->done;
    });
    if (!all_done) {
      return Status(static_cast<Code>(code),
                    cat("the operation plugin ", op.record().name, " failed"));
    }
  }
  return {};
}

Status Executor::retire(Lane* lane, bool* moved) {
  while (!lane->running.empty() && lane->running.front()->done) {
    std::unique_ptr<Run> run = std::move(lane->running.front());
    lane->running.pop_front();
    --outstanding_;
    *moved = true;
    if (!run->status.ok()) return run->status;
    finish(run.get(), {});
    spare_.push_back(std::move(run));
  }
  return {};
}

bool Executor::Run::has_work(size_t members) const {
  // What all ranks bring counts, since all must judge alike.
  if (batch.op == HVD_ALLTOALL) return true;
  return std::any_of(tensors.begin(), tensors.end(), [&](const hvd_batch_tensor& tensor) {
    if (batch.op != HVD_ALLGATHER) return tensor.count > 0;
    return tensor.row > 0 && sum_of(tensor.rank_rows, static_cast<int32_t>(members)) > 0;
  });
}

bool Executor::Run::reduces_wholes() const {
  if (op == nullptr || batch.op != HVD_ALLREDUCE || batch.device != HVD_CPU) return false;
  const auto& vtable = op->vtable<hvd_op_v1>();
  return vtable.struct_size >= offsetof(hvd_op_v1, reduce_wholes) + sizeof vtable.reduce_wholes &&
         vtable.reduce_wholes != nullptr;
}

void Executor::measure(Run* run) {
  uint64_t elements = 0;
  for (const hvd_batch_tensor& tensor : run->tensors) elements += static_cast<uint64_t>(tensor.count);
  instruments_->metrics.batch(run->tensors.size(), elements * dtype_size(run->batch.dtype),
                              fusion_threshold_);
  run->traced = instruments_->trace.start_batch(run->batch.op, run->batch.dtype, run->submissions);
}

// The plugin's own word for it, or its name and the operation's.
void Executor::trace_run(const Run& run) {
  const auto& vtable = run.op->vtable<hvd_op_v1>();
  const char* name = nullptr;
  if (vtable.struct_size >= offsetof(hvd_op_v1, activity) + sizeof vtable.activity &&
      vtable.activity != nullptr) {
    name = vtable.activity(run.op->context(), &run.batch);
  }
  instruments_->trace.activity(run.traced, name != nullptr ? name : run.op->record().name);
}

Status Executor::start(Lane* lane, Run* run) {
  measure(run);
  HVD_RETURN_IF_ERROR(make_outputs(*lane, run));
  if (!run->has_work(lane->set->ranks.size())) {
    run->done = true;
    return {};
  }
  if (run->op == nullptr) {
    refuse(run);
    return {};
  }
  if (run->traced != 0) trace_run(*run);
  const int code =
      run->op->vtable<hvd_op_v1>().run(run->op->context(), &run->batch, &on_done, run);
  if (code != HVD_OK && !run->done) {
    return Status(static_cast<Code>(code),
                  cat("the operation plugin ", run->op->record().name, " did not start ",
                      op_name(run->batch.op)));
  }
  return {};
}

bool Executor::wholes_of(Lane* lane, std::span<const PlanUnit> units,
                         std::span<const AgreedItem> items, std::vector<ByteView>* tensors) {
  std::unique_ptr<Run> run = make_run(lane, units, items);
  const bool possible = run->reduces_wholes();
  const size_t element = dtype_size(run->batch.dtype);
  for (const hvd_batch_tensor& tensor : run->tensors) {
    tensors->emplace_back(static_cast<const std::byte*>(tensor.input),
                          static_cast<size_t>(tensor.count) * element);
  }
  spare_.push_back(std::move(run));
  return possible;
}

Status Executor::run_wholes(Lane* lane, std::span<const PlanUnit> units,
                            std::span<const AgreedItem> items, ByteView theirs) {
  HVD_CHECK(idle(*lane));
  std::unique_ptr<Run> run = make_run(lane, units, items);
  size_t bytes = 0;
  for (const hvd_batch_tensor& tensor : run->tensors) {
    bytes += static_cast<size_t>(tensor.count) * dtype_size(run->batch.dtype);
  }
  if (!run->reduces_wholes() || bytes != theirs.size()) {
    return internal_error(cat("a rank brought ", theirs.size(), " bytes to a batch of ", bytes,
                              " that does not run so"));
  }
  run->batch.sequence = lane->next_sequence++;
  measure(run.get());
  if (run->traced != 0) trace_run(*run);
  const void* inputs[2] = {theirs.data(), theirs.data()};
  inputs[lane->set->index] = nullptr;
  const int code =
      run->op->vtable<hvd_op_v1>().reduce_wholes(run->op->context(), &run->batch, inputs);
  if (code != HVD_OK) {
    return Status(static_cast<Code>(code), cat("the operation plugin ", run->op->record().name,
                                               " did not reduce what it was given"));
  }
  finish(run.get(), {});
  spare_.push_back(std::move(run));
  return {};
}

// Every rank finds the same, so the work fails and the runtime goes on.
void Executor::refuse(Run* run) {
  const hvd_batch& batch = run->batch;
  finish(run, unimplemented(cat(
      "no operation plugin here runs ", op_name(batch.op),
      reduces(batch.op) ? cat(" (", reduce_op_name(batch.reduce_op), ")") : std::string(), " of ",
      dtype_name(batch.dtype), " on ", batch.device == HVD_CPU ? "the CPU" : "this device",
      "; convert the tensor, or add a plugin that does")));
  run->submissions.clear();
  run->done = true;
}

Status Executor::make_outputs(const Lane& lane, Run* run) {
  if (!has_own_output(run->batch.op)) return {};
  instruments_->trace.activity(run->traced, "ALLOCATE_OUTPUT");
  for (size_t i = 0; i < run->tensors.size(); ++i) {
    HVD_RETURN_IF_ERROR(make_output(lane, run, i));
  }
  instruments_->trace.activity(run->traced, nullptr);
  return {};
}

Status Executor::make_output(const Lane& lane, Run* run, size_t index) {
  const int32_t op = run->batch.op;
  const int32_t size = lane.set->size();
  hvd_batch_tensor& tensor = run->tensors[index];
  Submission& owner = *run->owner[index];
  const TensorSpec& spec = owner.request.tensors[run->member[index]];
  int64_t rows = 0;
  if (op == HVD_ALLGATHER) {
    rows = sum_of(tensor.rank_rows, size);
  } else if (op == HVD_ALLTOALL) {
    rows = sum_of(tensor.from_rows, size);
    owner.received_splits.assign(tensor.from_rows, tensor.from_rows + size);
  } else {
    rows = share_of(spec.shape.empty() ? 1 : spec.shape[0], lane.set->index, size);
  }
  if (owner.outputs.size() < owner.tensors.size()) owner.outputs.resize(owner.tensors.size());
  Submission::Output& output = owner.outputs[run->member[index]];
  output.shape = spec.shape;
  if (output.shape.empty()) output.shape.push_back(0);
  output.shape[0] = rows;
  const auto bytes = static_cast<size_t>(rows * tensor.row) * dtype_size(spec.dtype);
  if (bytes > 0 && run->batch.device == HVD_CPU) {
    output.data.reset(new (std::nothrow) std::byte[bytes]);
    if (!output.data) {
      return internal_error(cat("there is no memory for the ", bytes, " bytes of the result of ",
                                op_name(op)));
    }
  }
  tensor.output = output.data.get();
  return {};
}

void Executor::take_made(Run* run) {
  for (size_t i = 0; i < run->made.size(); ++i) {
    if (run->made[i] == nullptr) continue;
    run->owner[i]->outputs[run->member[i]].data = OutputMemory(
        static_cast<std::byte*>(run->made[i]), {framework_, run->batch.device});
  }
}

void Executor::finish(Run* run, const Status& status) {
  take_made(run);
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
