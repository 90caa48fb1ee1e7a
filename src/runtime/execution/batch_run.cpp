// Converts a plan's batch to an hvd_batch, and its results to outputs of submissions.
#include "runtime/execution/batch_run.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/operations/op_traits.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "collectives/kernels/reduction.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

int64_t sum_of(const int64_t* rows, int32_t size) {
  return std::accumulate(rows, rows + size, int64_t{0});
}

// Calls use(narrow type, wide type); does nothing for types without a wide type.
template <typename Use>
void with_types(int32_t dtype, Use&& use) {
  switch (dtype) {
    case HVD_UINT8:
      return use(uint8_t{}, int32_t{});
    case HVD_INT8:
      return use(int8_t{}, int32_t{});
    case HVD_UINT16:
      return use(uint16_t{}, int64_t{});
    case HVD_INT16:
      return use(int16_t{}, int64_t{});
    case HVD_UINT32:
      return use(uint32_t{}, int64_t{});
    case HVD_INT32:
      return use(int32_t{}, int64_t{});
    default:
      return;
  }
}

}  // namespace

void BatchExecutor::Run::clear() {
  op = nullptr;
  wide.clear();
  tensors.clear();
  member.clear();
  owner.clear();
  submissions.clear();
  rows.clear();
  ready.clear();
  made.clear();
  ends_turn = false;
  done = false;
  event = nullptr;
  is_on_stream = false;
  traced = 0;
  began = ended = {};
  status = {};
}

BatchExecutor::Run::~Run() {
  for (void* const output : made) {
    if (output != nullptr) framework->vtable->release(framework->context, batch.device, output);
  }
}

void BatchExecutor::Run::fill(const SetMembers& set, std::span<const PlanUnit> units,
                              std::span<const AgreedItem> items) {
  describe(set, *items[units.front().item].request, units.front().dtype);
  if (has_rank_rows(batch.op)) {
    // Reserve memory for all numbers first, since the plugin keeps pointers to them.
    size_t count = 0;
    for (const PlanUnit& unit : units) count += items[unit.item].request->tensors.size();
    rows.reserve(2 * set.ranks.size() * count);
  }
  for (const PlanUnit& unit : units) add(set, items[unit.item], unit.dtype);
  if (batch.device != HVD_CPU) add_devices();
  batch.keeps_tensors = std::all_of(submissions.begin(), submissions.end(),
                                    [](const Submission* one) { return one->keeps_tensors; });
  batch.is_trial = std::any_of(submissions.begin(), submissions.end(),
                               [](const Submission* one) { return one->is_trial; });
  // A library must not keep the copies.
  if (is_wide()) batch.keeps_tensors = 0;
  batch.tensors = tensors.data();
  batch.tensor_count = static_cast<uint32_t>(tensors.size());
}

void BatchExecutor::Run::describe(const SetMembers& set, const Request& request, int32_t of) {
  dtype = of;
  batch = {};
  batch.struct_size = sizeof batch;
  batch.op = request.op;
  batch.reduce_op = request.reduce_op == HVD_AVERAGE ? HVD_SUM : request.reduce_op;
  batch.dtype = dtype;
  batch.device = request.is_on_device() ? request.device : static_cast<int32_t>(HVD_CPU);
  batch.process_set = set.id;
  batch.root = traits_of(request.op).has_root ? set.index_of(request.root) : 0;
  batch.prescale = request.prescale;
  batch.postscale = request.postscale;
  if (request.reduce_op == HVD_AVERAGE) {
    if (batch.postscale == 1) batch.divisor = set.size();
    batch.postscale /= set.size();
    if (batch.device == HVD_CPU) batch.dtype = sum_type_of_average(dtype);
  }
  batch.tuning = &tuning;
}

void BatchExecutor::Run::add(const SetMembers& set, const AgreedItem& item, int32_t of) {
  if (item.submission != nullptr) submissions.push_back(item.submission);
  const Request& request = *item.request;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& spec = request.tensors[i];
    if (spec.dtype != of) continue;
    hvd_batch_tensor tensor{};
    if (item.submission != nullptr) {
      tensor.input = item.submission->tensors[i].input;
      tensor.output = item.submission->tensors[i].output;
    }
    tensor.count = spec.count();
    tensor.row = spec.row();
    if (has_rank_rows(request.op)) add_rows(set, item, i, &tensor);
    tensors.push_back(tensor);
    member.push_back(static_cast<uint32_t>(i));
    owner.push_back(item.submission);
  }
}

void BatchExecutor::Run::add_rows(const SetMembers& set, const AgreedItem& item, size_t tensor,
                                  hvd_batch_tensor* to) {
  const auto members = set.ranks.size();
  const auto mine = static_cast<size_t>(set.index);
  const std::vector<RankRows>& all = *item.rows;
  const bool to_each = traits_of(item.request->op).row_counts == RowCounts::kPerRank;
  to->rank_rows = rows.data() + rows.size();
  for (size_t r = 0; r < members; ++r) {
    rows.push_back(to_each ? all[mine].rows[r] : all[r].rows[tensor]);
  }
  if (!to_each) return;
  to->from_rows = rows.data() + rows.size();
  for (size_t r = 0; r < members; ++r) rows.push_back(all[r].rows[mine]);
}

// Adds the device of the tensors and the event of each tensor's data. A joined rank has no events.
void BatchExecutor::Run::add_devices() {
  for (const Submission* one : owner) {
    ready.push_back(one == nullptr ? nullptr : one->ready_event);
  }
  made.assign(owner.size(), nullptr);
  batch.ready_events = ready.data();
  batch.made_outputs = made.data();
  const auto own = std::find_if(owner.begin(), owner.end(),
                                [](const Submission* one) { return one != nullptr; });
  if (own == owner.end()) return;
  batch.device = (*own)->request.device;
  batch.stream = (*own)->stream;
}

bool BatchExecutor::Run::has_work(size_t members) const {
  // Uses the rows of all ranks, since all ranks must decide equally.
  const RowCounts counts = traits_of(batch.op).row_counts;
  if (counts == RowCounts::kPerRank) return true;
  return std::any_of(tensors.begin(), tensors.end(), [&](const hvd_batch_tensor& tensor) {
    if (counts == RowCounts::kNone) return tensor.count > 0;
    return tensor.row > 0 && sum_of(tensor.rank_rows, static_cast<int32_t>(members)) > 0;
  });
}

bool BatchExecutor::Run::reduces_one_shot() const {
  if (op == nullptr || batch.op != HVD_ALLREDUCE || batch.device != HVD_CPU || is_wide()) {
    return false;
  }
  return field_of(op->vtable<hvd_op_v1>(), &hvd_op_v1::reduce_wholes) != nullptr;
}

bool BatchExecutor::Run::has_own_outputs() const { return traits_of(batch.op).makes_outputs; }

Status BatchExecutor::Run::make_outputs(const SetMembers& set) {
  for (size_t i = 0; i < tensors.size(); ++i) HVD_RETURN_IF_ERROR(make_output(set, i));
  return {};
}

Status BatchExecutor::Run::make_output(const SetMembers& set, size_t index) {
  const int32_t size = set.size();
  hvd_batch_tensor& tensor = tensors[index];
  Submission& submission = *owner[index];
  const TensorSpec& spec = submission.request.tensors[member[index]];
  const RowCounts counts = traits_of(batch.op).row_counts;
  int64_t count = 0;
  if (counts == RowCounts::kPerTensor) {
    count = sum_of(tensor.rank_rows, size);
  } else if (counts == RowCounts::kPerRank) {
    count = sum_of(tensor.from_rows, size);
    submission.received_splits.assign(tensor.from_rows, tensor.from_rows + size);
  } else {
    const auto rows = static_cast<size_t>(spec.shape.empty() ? 1 : spec.shape[0]);
    const auto members = static_cast<size_t>(size), own = static_cast<size_t>(set.index);
    count = static_cast<int64_t>(collectives::scattered_rows(rows, members, own).count);
  }
  auto& outputs = submission.outputs;
  if (outputs.size() < submission.tensors.size()) outputs.resize(submission.tensors.size());
  Submission::Output& output = outputs[member[index]];
  output.shape = spec.shape;
  if (output.shape.empty()) output.shape.push_back(0);
  output.shape[0] = count;
  if (tensor.output != nullptr) return {};  // the caller's memory
  const auto bytes = static_cast<size_t>(count * tensor.row) * dtype_size(spec.dtype);
  if (bytes > 0 && batch.device == HVD_CPU) {
    output.data.reset(new (std::nothrow) std::byte[bytes]);
    if (!output.data) {
      return internal_error(
          cat("there is no memory for the ", bytes, " bytes of the result of ", op_name(batch.op)));
    }
  }
  tensor.output = output.data.get();
  return {};
}

Status BatchExecutor::Run::widen(const SetMembers& set) {
  if (!is_wide()) return {};
  std::vector<int64_t> kept;
  for (const hvd_batch_tensor& tensor : tensors) {
    if (batch.op == HVD_ALLREDUCE) {
      kept.push_back(tensor.count);
      continue;
    }
    const auto rows = static_cast<size_t>(tensor.row == 0 ? 0 : tensor.count / tensor.row);
    const auto own =
        collectives::scattered_rows(rows, set.ranks.size(), static_cast<size_t>(set.index));
    kept.push_back(static_cast<int64_t>(own.count) * tensor.row);
  }
  return wide.widen(dtype, batch.dtype, kept, tensors);
}

void BatchExecutor::Run::keep_tensors() {
  for (Submission* submission : submissions) submission->in_use = true;
  made.clear();
}

void BatchExecutor::Run::take_made() {
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == nullptr) continue;
    owner[i]->outputs[member[i]].data = OutputMemory(
        static_cast<std::byte*>(std::exchange(made[i], nullptr)), {framework, batch.device});
  }
}

int32_t sum_type_of_average(int32_t dtype) {
  int32_t wide = dtype;
  with_types(dtype, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
    wide = std::is_same_v<Wide, int32_t> ? HVD_INT32 : HVD_INT64;
  });
  return wide;
}

Status WideAverage::widen(int32_t dtype, int32_t wide, std::span<const int64_t> kept,
                          std::span<hvd_batch_tensor> tensors) {
  dtype_ = dtype;
  size_t bytes = 0;
  const auto size_in_wide = [&](int64_t count) {
    return static_cast<size_t>(count) * dtype_size(wide);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    bytes += size_in_wide(tensors[i].count + kept[i]);
  }
  memory_.reset(new (std::nothrow) std::byte[bytes + 1]);
  if (memory_ == nullptr) {
    return internal_error(cat("there is no memory for the ", bytes,
                              " bytes in which an average of ", dtype_name(dtype), " is summed"));
  }
  std::byte* next = memory_.get();
  for (size_t i = 0; i < tensors.size(); ++i) {
    hvd_batch_tensor& tensor = tensors[i];
    if (tensor.input != nullptr) {
      with_types(dtype, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
        std::copy_n(static_cast<const Narrow*>(tensor.input), tensor.count,
                    reinterpret_cast<Wide*>(next));
      });
      tensor.input = next;
    }
    next += size_in_wide(tensor.count);
    if (tensor.output != nullptr) {
      results_.push_back({next, tensor.output, kept[i]});
      tensor.output = next;
    }
    next += size_in_wide(kept[i]);
  }
  return {};
}

void WideAverage::narrow() {
  with_types(dtype_, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
    constexpr auto kLowest = static_cast<Wide>(std::numeric_limits<Narrow>::lowest());
    constexpr auto kHighest = static_cast<Wide>(std::numeric_limits<Narrow>::max());
    for (const WideResult& result : results_) {
      std::transform(reinterpret_cast<const Wide*>(result.wide),
                     reinterpret_cast<const Wide*>(result.wide) + result.count,
                     static_cast<Narrow*>(result.output), [&](Wide value) {
                       return static_cast<Narrow>(std::clamp(value, kLowest, kHighest));
                     });
    }
  });
  results_.clear();
  memory_.reset();
}

}  // namespace hvd::runtime
