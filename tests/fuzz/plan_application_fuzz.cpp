// Plans of a faulty root: any bytes, decoded and applied by a rank that has announced work of each kind,
// or has joined. The op behind it touches every byte that a batch names. A submission ends at most once.
//
// The first byte chooses the rank; then come plans, each behind its size as two bytes.
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/kernels/reduction.h"
#include "fuzz/target.h"
#include "runtime/core/plan_application.h"

namespace {

using namespace hvd::runtime;

constexpr int32_t kRank = 1;
constexpr FusionOptions kFusion{1 << 20, false};
constexpr uint32_t kCached = 1;

uint64_t total = 0;  // keeps the reads

void read_all(const void* memory, int64_t elements, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(memory);
  for (size_t i = 0; i < static_cast<size_t>(elements) * size; ++i) total += bytes[i];
}
void write_all(void* memory, int64_t elements, size_t size) {
  if (elements > 0) std::memset(memory, 7, static_cast<size_t>(elements) * size);
}
int64_t sum_of(const int64_t* rows, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += rows[i];
  return sum;
}

// An op of a set with `size` members.
struct TouchingOp {
  size_t members;

  static void touch(const hvd_batch& batch, size_t members, const hvd_batch_tensor& tensor) {
    const size_t size = dtype_size(batch.dtype);
    if (batch.op == HVD_ALLGATHER) {
      read_all(tensor.input, tensor.rank_rows[kRank] * tensor.row, size);
      write_all(tensor.output, sum_of(tensor.rank_rows, members) * tensor.row, size);
    } else if (batch.op == HVD_ALLTOALL) {
      read_all(tensor.input, sum_of(tensor.rank_rows, members) * tensor.row, size);
      write_all(tensor.output, sum_of(tensor.from_rows, members) * tensor.row, size);
    } else if (batch.op == HVD_REDUCESCATTER) {
      const int64_t rows = tensor.row == 0 ? 0 : tensor.count / tensor.row;
      const auto kept =
          hvd::collectives::scattered_rows(static_cast<size_t>(rows), members, kRank).count;
      read_all(tensor.input, tensor.count, size);
      write_all(tensor.output, static_cast<int64_t>(kept) * tensor.row, size);
    } else if (tensor.input != nullptr) {  // otherwise this rank has joined
      read_all(tensor.input, tensor.count, size);
      write_all(tensor.output, tensor.count, size);
    }
  }
  static int run(void* context, const hvd_batch* batch, hvd_batch_done done, void* argument) {
    for (uint32_t i = 0; i < batch->tensor_count; ++i) {
      touch(*batch, static_cast<TouchingOp*>(context)->members, batch->tensors[i]);
    }
    done(argument, HVD_OK, nullptr);
    return HVD_OK;
  }
  static int reduce_wholes(void*, const hvd_batch* batch, const void* const* inputs) {
    const auto* theirs = static_cast<const std::byte*>(inputs[0]);
    for (uint32_t i = 0; i < batch->tensor_count; ++i) {
      const hvd_batch_tensor& tensor = batch->tensors[i];
      touch(*batch, 2, tensor);
      read_all(theirs, tensor.count, dtype_size(batch->dtype));
      theirs += static_cast<size_t>(tensor.count) * dtype_size(batch->dtype);
    }
    return HVD_OK;
  }
  static const hvd_plugin& record() {
    static const hvd_op_v1 vtable{.struct_size = sizeof vtable,
                                  .supports = [](void*, const hvd_batch*) { return int32_t{1}; },
                                  .run = &run,
                                  .poll = [](void*, int32_t*) { return int{HVD_OK}; },
                                  .new_set = nullptr,
                                  .drop_set = nullptr,
                                  .abort = [](void*, const char*) {},
                                  .activity = nullptr,
                                  .before_sleep = nullptr,
                                  .reduce_wholes = &reduce_wholes};
    static const hvd_plugin record = [] {
      hvd_plugin made{};
      made.struct_size = sizeof made;
      made.name = "touch";
      made.close = [](void*) {};
      made.vtable = &vtable;
      return made;
    }();
    return record;
  }
};

class Member final : public PlanSink {
 public:
  Member(int32_t size, bool joins)
      : machines_(static_cast<size_t>(size)),
        op_{static_cast<size_t>(size)},
        sets_(kRank, size),
        ops_(opened(&op_)) {
    machines_.back() = size == 2 ? 1 : 0;  // two ranks on two machines speculate
    set_ = std::make_unique<ProcessSetState>(sets_.find(0), kRank, machines_, kFusion, 16);
    HVD_CHECK(executor_.open_queue(set_->members, &set_->queue).ok());
    submit("r", HVD_ALLREDUCE, {{HVD_FLOAT32, {4}}});
    submit("g", HVD_ALLGATHER, {{HVD_FLOAT32, {2, 3}}});
    submit("a", HVD_ALLTOALL, {{HVD_FLOAT32, {size, 2}}},
           std::vector<int32_t>(static_cast<size_t>(size), 1));
    submit("s", HVD_REDUCESCATTER, {{HVD_FLOAT32, {3, 2}}});
    submit("b", HVD_BROADCAST, {{HVD_INT64, {2}}});
    submit("m", HVD_ALLREDUCE, {{HVD_FLOAT32, {2}}, {HVD_INT32, {3}}});
    submit("<barrier>", HVD_BARRIER, {});
    submit("<process sets>", kAddProcessSets, {}, {2, 0, 1});
    submit_cached();
    if (joins) {
      submit(std::string(kJoinName), HVD_JOIN, {});
      set_->has_joined = true;
      set_->negotiator.join();
    }
  }

  // Returns whether another plan may follow.
  bool apply(const Plan& plan) {
    const hvd::Status status = plans_.apply(set_.get(), plan, plan.eager_data.bytes, false);
    bool moved = status.ok();
    while (moved) {
      const auto advanced = executor_.advance();
      moved = advanced.ok() && *advanced;
    }
    std::vector<Submission*> over(over_.begin(), over_.end());
    names_.remove(over);
    over_.clear();
    return status.ok() && !plan.last;
  }

 private:
  static std::vector<OpenedPlugin> opened(TouchingOp* op) {
    std::vector<OpenedPlugin> ops;
    ops.push_back(OpenedPlugin::made(&TouchingOp::record(), op));
    return ops;
  }

  Submission& make(const std::string& name, int32_t op, std::vector<TensorSpec> tensors,
                   std::vector<int32_t> splits) {
    auto& submission = *submissions_.emplace_back(std::make_unique<Submission>());
    submission.request.op = op;
    submission.request.reduce_op = HVD_SUM;
    submission.request.tensors = std::move(tensors);
    submission.request.splits = std::move(splits);
    for (const TensorSpec& spec : submission.request.tensors) {
      const auto bytes = static_cast<size_t>(spec.count()) * dtype_size(spec.dtype);
      const bool in_place = op == HVD_ALLREDUCE || op == HVD_BROADCAST;
      auto& memory = *memory_.emplace_back(std::make_unique<hvd::Bytes>(bytes));
      submission.tensors.push_back({memory.data(), in_place ? memory.data() : nullptr});
    }
    HVD_CHECK(names_.insert(0, name, false, &submission).ok());
    submission.accepted = true;
    return submission;
  }
  void submit(const std::string& name, int32_t op, std::vector<TensorSpec> tensors,
              std::vector<int32_t> splits = {}) {
    Submission& submission = make(name, op, std::move(tensors), std::move(splits));
    submission.name->announced = &submission;
    if (op != HVD_JOIN) submission.announced_id = set_->negotiator.announce(submission);
  }
  // A tensor that the ranks have agreed on before.
  void submit_cached() {
    Submission& submission = make("c", HVD_ALLREDUCE, {{HVD_FLOAT32, {5}}}, {});
    CacheEntry* entry = set_->cache.put(kCached, "c");
    entry->request = submission.request;
    entry->name = submission.name;
    submission.name->cached = entry;
    names_.keep(submission.name, true);
    submission.name->announced = &submission;
    submission.announced_id = set_->negotiator.announce(submission);
  }

  void go_on(Submission*) override {}  // this op has no streams
  void complete(Submission* submission, hvd::Status) override {
    HVD_CHECK(ended_.insert(submission).second);
    over_.insert(submission);
    if (submission->name->announced == submission) submission->name->announced = nullptr;
  }
  void all_have_joined(ProcessSetState* set, int32_t last) override {
    HVD_CHECK(set->has_joined && set->members->index_of(last) >= 0);
    set->negotiator.all_have_joined();
    set->has_joined = false;
    complete(names_.find(0, kJoinName)->announced, {});
  }
  hvd::Status register_sets(const PlanItem& item, Submission* submission) override {
    HVD_CHECK(submission != nullptr && item.request.splits == submission->request.splits);
    complete(submission, {});
    return {};
  }

  std::vector<int32_t> machines_;
  TouchingOp op_;
  SetTable sets_;
  TensorTable names_;
  OpSelector ops_;
  hvd::RankCounters counters_;
  Instruments instruments_{&counters_};
  BatchExecutor executor_{kFusion.threshold, &ops_, this, &instruments_};
  PlanApplication plans_{{&names_, &executor_, &instruments_, this}, kRank};
  std::unique_ptr<ProcessSetState> set_;
  std::vector<std::unique_ptr<Submission>> submissions_;
  std::vector<std::unique_ptr<hvd::Bytes>> memory_;
  std::set<Submission*> ended_, over_;
};

// Plausible row counts that need more memory than a test should allocate.
bool is_too_large(const Plan& plan) {
  for (const PlanItem& item : plan.items) {
    for (const RankRows& one : item.rows) {
      for (const int64_t rows : one.rows) {
        if (rows > 1 << 12 && rows < int64_t{1} << 60) return true;
      }
    }
  }
  return false;
}

}  // namespace

HVD_FUZZ_TARGET(plan_application) {
  hvd::ByteReader in(bytes);
  const auto kind = in.get<uint8_t>();
  Member member((kind & 1) != 0 ? 2 : 3, (kind & 2) != 0);
  for (;;) {
    const auto length = in.get<uint16_t>();
    // An exact-size copy, so that sanitizers find a read past its end.
    const hvd::ByteView view = in.get_raw(length);
    if (in.failed()) return;
    const hvd::Bytes message(view.begin(), view.end());
    Plan plan;
    if (!decode(message, &plan).ok() || is_too_large(plan) || !member.apply(plan)) return;
  }
}
