#include "runtime/execution/batch_executor.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "runtime/execution/batch_run.h"

namespace hvd::runtime {
namespace {

// Maximum number of batches of a process set that run in an op plugin at once. With two, the plugin
// packs one batch while it unpacks the other.
constexpr size_t kRunning = 2;
// Maximum number of batches of a process set on a device's stream, since their tensors stay in use.
constexpr size_t kOnStream = 256;

Status status_of(int status, const char* error) {
  if (status == HVD_OK) return {};
  return Status(static_cast<Code>(status),
                error != nullptr ? error : "an operation failed without a reason");
}

}  // namespace

BatchExecutor::BatchExecutor(uint64_t fusion_threshold, OpSelector* ops, CompletionSink* sink,
                             Instruments* instruments)
    : fusion_threshold_(fusion_threshold), ops_(ops), sink_(sink), instruments_(instruments) {}
BatchExecutor::~BatchExecutor() = default;

Status BatchExecutor::open_queue(std::shared_ptr<const SetMembers> set, BatchQueue** queue) {
  HVD_RETURN_IF_ERROR(ops_->new_set(set->id, set->ranks));
  queues_.push_back(std::make_unique<BatchQueue>(std::move(set)));
  *queue = queues_.back().get();
  return {};
}

Status BatchExecutor::close_queue(BatchQueue* queue) {
  HVD_CHECK(idle(*queue));
  HVD_RETURN_IF_ERROR(ops_->drop_set(queue->set->id));
  std::erase(turns_, queue);
  std::erase_if(queues_, [queue](const auto& one) { return one.get() == queue; });
  return {};
}

size_t BatchExecutor::outstanding(const BatchQueue& queue) const {
  return queue.waiting.size() + queue.running.size();
}

size_t BatchExecutor::busy(const BatchQueue& queue) const {
  return outstanding(queue) - queue.on_stream;
}

std::unique_ptr<BatchExecutor::Run> BatchExecutor::make_run() {
  if (spare_.empty()) return std::make_unique<Run>();
  std::unique_ptr<Run> run = std::move(spare_.back());
  spare_.pop_back();
  run->clear();
  return run;
}

int32_t BatchExecutor::device_of_joined() const {
  const int32_t device = device_ == nullptr ? static_cast<int32_t>(HVD_CPU) : device_->load();
  return device == HVD_CPU ? HVD_UNKNOWN_DEVICE : device;
}

std::unique_ptr<BatchExecutor::Run> BatchExecutor::make_run(BatchQueue* queue,
                                                            std::span<const PlanUnit> units,
                                                            std::span<const AgreedItem> items) {
  std::unique_ptr<Run> run = make_run();
  run->tuning = queue->set->id == 0 ? tuning_ : others_tuning_;
  run->fill(*queue->set, units, items);
  if (run->batch.device != HVD_CPU && run->submissions.empty()) {
    run->batch.device = device_of_joined();
  }
  run->op = ops_->select(run->batch);
  return run;
}

void BatchExecutor::add(BatchQueue* queue, std::span<const PlanUnit> units,
                        std::span<const AgreedItem> items) {
  std::unique_ptr<Run> run = make_run(queue, units, items);
  if (run->op == nullptr && units.size() > 1) {
    // If no plugin runs the units together, each unit runs alone; every rank decides equally.
    spare_.push_back(std::move(run));
    for (const PlanUnit& unit : units) add(queue, {&unit, 1}, items);
    return;
  }
  run->batch.sequence = queue->next_sequence++;
  run->step = instruments_->steps->ended;
  if (run->batch.device != HVD_CPU) queue->last_on_device = run.get();
  ++outstanding_;
  queue->waiting.push_back(std::move(run));
}

bool BatchExecutor::end_plan(BatchQueue* queue) {
  Run* const last = std::exchange(queue->last_on_device, nullptr);
  if (last == nullptr) return false;
  last->ends_turn = true;
  if (queue->waits_for_turns()) return true;
  give_turn(queue);
  return false;
}

bool BatchExecutor::can_start(const BatchQueue& queue) const {
  if (queue.waiting.empty() || queue.running.size() - queue.on_stream >= kRunning) return false;
  if (queue.waiting.front()->batch.device == HVD_CPU) return true;
  return queue.on_stream < kOnStream && !turns_.empty() && turns_.front() == &queue;
}

Result<bool> BatchExecutor::advance() {
  if (outstanding_ == 0) return false;
  bool moved = false;
  bool running = false;
  for (const auto& queue : queues_) {
    auto started = advance(queue.get());
    if (!started.ok()) return started;
    moved |= started.value();
    running |= !queue->running.empty();
  }
  if (!running) return moved;
  HVD_RETURN_IF_ERROR(poll_plugins(&moved));
  for (const auto& queue : queues_) note_streams(queue.get(), &moved);
  for (const auto& queue : queues_) HVD_RETURN_IF_ERROR(retire(queue.get(), &moved));
  HVD_RETURN_IF_ERROR(failure_);
  return moved;
}

Result<bool> BatchExecutor::advance(BatchQueue* queue) {
  bool moved = false;
  while (can_start(*queue)) {
    queue->running.push_back(std::move(queue->waiting.front()));
    queue->waiting.pop_front();
    moved = true;
    if (queue->running.back()->ends_turn) turns_.pop_front();
    HVD_RETURN_IF_ERROR(start(queue, queue->running.back().get()));
    HVD_RETURN_IF_ERROR(retire(queue, &moved));
  }
  return moved;
}

Status BatchExecutor::poll_plugins(bool* moved) {
  for (const OpenedPlugin& op : ops_->all()) {
    int32_t progressed = 0;
    const int code = op.vtable<hvd_op_v1>().poll(op.context(), &progressed);
    if (progressed != 0) *moved = true;
    if (code == HVD_OK) continue;
    const bool all_done = std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) {
      return queue->running.empty() || queue->running.front()->done;
    });
    if (!all_done) {
      return Status(static_cast<Code>(code),
                    cat("the operation plugin ", op.record().name, " failed"));
    }
  }
  return {};
}

void BatchExecutor::note_streams(BatchQueue* queue, bool* moved) {
  if (queue->running.size() == queue->on_stream) return;
  for (const auto& run : queue->running) {
    if (run->event == nullptr || run->is_on_stream) continue;
    run->is_on_stream = *moved = true;
    ++queue->on_stream;
    go_on(run.get());
    instruments_->trace.leave(run->traced);
  }
}

void BatchExecutor::go_on(Run* run) {
  run->take_made();
  for (Submission* submission : run->submissions) {
    if (run->event != nullptr) submission->event = run->event;
    if (--submission->units_ahead > 0 || !submission->is_ordered) continue;
    if (submission->event != nullptr) sink_->go_on(submission);
  }
}

// Ends completed batches in order. A batch does not wait for earlier batches on a device's stream.
Status BatchExecutor::retire(BatchQueue* queue, bool* moved) {
  for (auto at = queue->running.begin(); at != queue->running.end();) {
    if (!(*at)->done && !(*at)->is_on_stream) return {};
    if (!(*at)->done) {
      ++at;
      continue;
    }
    std::unique_ptr<Run> run = std::move(*at);
    at = queue->running.erase(at);
    if (run->is_on_stream) --queue->on_stream;
    --outstanding_;
    *moved = true;
    if (!run->status.ok()) return run->status;
    finish(run.get(), {});
    spare_.push_back(std::move(run));
  }
  return {};
}

void BatchExecutor::measure(Run* run) {
  uint64_t elements = 0;
  for (const hvd_batch_tensor& tensor : run->tensors)
    elements += static_cast<uint64_t>(tensor.count);
  instruments_->metrics->batch(run->tensors.size(), elements * dtype_size(run->dtype),
                               fusion_threshold_);
  run->traced = instruments_->trace.start_batch(run->batch.op, run->dtype, run->submissions);
}

// Records the activity of a batch: the name from hvd_op_v1.activity, or else the plugin's name.
void BatchExecutor::trace_run(const Run& run) {
  auto* const activity = field_of(run.op->vtable<hvd_op_v1>(), &hvd_op_v1::activity);
  const char* const name = activity == nullptr ? nullptr : activity(run.op->context(), &run.batch);
  instruments_->trace.activity(run.traced, name != nullptr ? name : run.op->record().name);
}

Status BatchExecutor::start(BatchQueue* queue, Run* run) {
  measure(run);
  HVD_RETURN_IF_ERROR(make_outputs(*queue, run));
  if (!run->has_work(queue->set->ranks.size())) {
    run->done = true;
    return {};
  }
  if (run->op == nullptr) {
    refuse(run);
    return {};
  }
  HVD_RETURN_IF_ERROR(run->widen(*queue->set));
  if (run->traced != 0) trace_run(*run);
  const bool is_on_device = run->batch.device != HVD_CPU;
  const bool is_ordered =
      is_on_device &&
      std::ranges::any_of(run->submissions, [](const Submission* one) { return one->is_ordered; });
  run->batch.on_stream = is_ordered && framework_ != nullptr ? &BatchExecutor::on_stream : nullptr;
  run->batch.fails = is_on_device ? &BatchExecutor::on_failure : nullptr;
  run->batch.ran = is_on_device ? &BatchExecutor::on_ran : nullptr;
  run->failure = &failure_;
  run->framework = framework_;
  const int code = run->op->vtable<hvd_op_v1>().run(run->op->context(), &run->batch, &on_done, run);
  if (code != HVD_OK && !run->done) {
    return Status(static_cast<Code>(code), cat("the operation plugin ", run->op->record().name,
                                               " did not start ", op_name(run->batch.op)));
  }
  return {};
}

bool BatchExecutor::one_shot_inputs(BatchQueue* queue, std::span<const PlanUnit> units,
                                    std::span<const AgreedItem> items,
                                    std::vector<ByteView>* tensors) {
  std::unique_ptr<Run> run = make_run(queue, units, items);
  const bool possible = run->reduces_one_shot();
  const size_t element = dtype_size(run->dtype);
  for (const hvd_batch_tensor& tensor : run->tensors) {
    tensors->emplace_back(static_cast<const std::byte*>(tensor.input),
                          static_cast<size_t>(tensor.count) * element);
  }
  spare_.push_back(std::move(run));
  return possible;
}

Status BatchExecutor::run_one_shot(BatchQueue* queue, std::span<const PlanUnit> units,
                                   std::span<const AgreedItem> items, ByteView theirs) {
  std::unique_ptr<Run> run = make_run(queue, units, items);
  size_t bytes = 0;
  for (const hvd_batch_tensor& tensor : run->tensors) {
    bytes += static_cast<size_t>(tensor.count) * dtype_size(run->dtype);
  }
  const bool is_possible = idle(*queue) && queue->set->ranks.size() == 2 &&
                           run->submissions.size() == units.size() && run->reduces_one_shot();
  if (!is_possible || bytes != theirs.size()) {
    return internal_error(cat("a rank sent ", theirs.size(), " bytes to a batch of ", bytes,
                              " that cannot be reduced one-shot"));
  }
  run->batch.sequence = queue->next_sequence++;
  measure(run.get());
  if (run->traced != 0) trace_run(*run);
  const void* inputs[2] = {theirs.data(), theirs.data()};
  inputs[queue->set->index] = nullptr;
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

// Fails only the work of the batch. The runtime continues, since every rank refuses the batch equally.
void BatchExecutor::refuse(Run* run) {
  const hvd_batch& batch = run->batch;
  finish(run, unimplemented(cat("no operation plugin here runs ", op_name(batch.op),
                                reduces(batch.op) ? cat(" (", reduce_op_name(batch.reduce_op), ")")
                                                  : std::string(),
                                " of ", dtype_name(run->dtype), " on ",
                                batch.device == HVD_CPU ? "the CPU" : "this device",
                                "; convert the tensor, or add a plugin that does")));
  run->submissions.clear();
  run->done = true;
}

Status BatchExecutor::make_outputs(const BatchQueue& queue, Run* run) {
  if (!run->has_own_outputs()) return {};
  instruments_->trace.activity(run->traced, "ALLOCATE_OUTPUT");
  HVD_RETURN_IF_ERROR(run->make_outputs(*queue.set));
  instruments_->trace.activity(run->traced, nullptr);
  return {};
}

void BatchExecutor::note_times(const Run& run) {
  if (run.ended == run.began) return;
  device_ended_ = std::max(device_ended_, run.ended);
  instruments_->trace.ran(run.traced, run.began, run.ended);
  // Count only batches of the set of all ranks, as for the wait until all ranks agree.
  if (run.batch.process_set != 0 || run.submissions.empty()) return;
  instruments_->steps->batch_ended(run.step, run.ended - run.began);
}

void BatchExecutor::finish(Run* run, const Status& status) {
  if (!run->is_on_stream) go_on(run);
  if (status.ok()) run->wide.narrow();
  note_times(*run);
  instruments_->trace.end_batch(run->traced);
  for (Submission* submission : run->submissions) {
    if (!status.ok() && submission->status.ok()) submission->status = status;
    if (--submission->units_left == 0) sink_->complete(submission, submission->status);
  }
}

void BatchExecutor::on_done(void* argument, int status, const char* error) {
  Run* run = static_cast<Run*>(argument);
  HVD_CHECK(!run->done);
  run->done = true;
  if ((status & HVD_TENSORS_IN_USE) != 0) run->keep_tensors();
  run->status = status_of(status & ~HVD_TENSORS_IN_USE, error);
}

void BatchExecutor::on_failure(void* argument, int status, const char* error) {
  HVD_CHECK(status != HVD_OK);
  *static_cast<Run*>(argument)->failure = status_of(status, error);
}

void BatchExecutor::on_ran(void* argument, int64_t began, int64_t ended) {
  Run* run = static_cast<Run*>(argument);
  HVD_CHECK(!run->done);
  if (ended < began) return;
  run->began = Clock::time_point(std::chrono::nanoseconds(began));
  run->ended = Clock::time_point(std::chrono::nanoseconds(ended));
}

void BatchExecutor::on_stream(void* argument, void* event) {
  Run* run = static_cast<Run*>(argument);
  HVD_CHECK(!run->done && run->event == nullptr);
  run->event = event;
}

void BatchExecutor::abort(const char* cause) {
  for (const OpenedPlugin& op : ops_->all()) op.vtable<hvd_op_v1>().abort(op.context(), cause);
}

}  // namespace hvd::runtime
