// The kernels of all operations.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attributes.h"
#include "described.h"
#include "library.h"

namespace hvd::tensorflow {

namespace {

// The longest inline wait: ranks with the same computation reach a node within some milliseconds of each other.
constexpr double kSeconds = 0.01;
constexpr uint32_t kMostDoublings = 8;

// Bounded inline wait: decides whether, and for how long, the thread of TensorFlow's pool that runs a node waits for
// the work. Such a wait saves two wake-ups of other threads. The bound prevents a deadlock of ranks that reach nodes in
// different orders. After each wasted wait, more runs skip the wait.
class InlineWait {
 public:
  explicit InlineWait(bool is_last = false) : is_last_(is_last) {}
  InlineWait& operator=(const InlineWait& other) {
    is_last_ = other.is_last_;
    return *this;
  }

  // Returns whether the work was complete in time; it is then finished and freed.
  bool finishes(PendingOperation* work) {
    if (!is_last_) return false;
    // Runs of one node may overlap, and no run may count below zero.
    for (uint32_t left = skips_.load(); left > 0;) {
      if (skips_.compare_exchange_weak(left, left - 1)) return false;
    }
    std::vector<char> error(kErrorSize);
    const int status = library()->wait(work->handle, kSeconds, error.data(), error.size());
    if (status == HVD_IN_PROGRESS) {
      const uint32_t doublings = std::min(wasted_.fetch_add(1), kMostDoublings);
      skips_.store((1U << doublings) - 1);
      return false;
    }
    wasted_.store(0);
    hand_over(work, status, error.data());
    return true;
  }

 private:
  bool is_last_;
  std::atomic<uint32_t> wasted_{0};  // wasted waits in a row
  std::atomic<uint32_t> skips_{0};   // number of the next runs that skip the wait
};

// The attributes of a node of a graph.
struct Kernel {
  const Operation* operation;
  std::string name;
  int32_t what = 0, reduce_op = 0, root_rank = 0, process_set = 0;
  double prescale = 0, postscale = 0;
  size_t tensor_count = 0;
  std::vector<Shape> shapes;  // shapes of the tensors, if the graph knows all of them
  Names names;                // set if the node has a name
  mutable InlineWait inline_wait;
};

template <int kIndex>
void* create(Construction* construction) {
  auto kernel = std::make_unique<Kernel>();
  kernel->operation = &kOperations[kIndex];
  Attributes attributes(*tf_api(), construction);
  kernel->process_set = attributes.number("process_set");
  if (kernel->operation->kind < 0) {
    kernel->what = attributes.number("what");
    return kernel.release();
  }
  kernel->name = attributes.text("tensor_name");
  if (!kernel->name.empty()) {
    const StringView running = tf_api()->node_name(construction);
    kernel->name.insert(0, calls_of({running.data, running.size}, attributes.text("node")));
  }
  kernel->reduce_op = attributes.number("reduce_op");
  kernel->root_rank = attributes.number("root_rank");
  kernel->prescale = attributes.factor("prescale_bits");
  kernel->postscale = attributes.factor("postscale_bits");
  kernel->tensor_count = attributes.count("T");
  kernel->shapes = shapes_of(attributes.numbers("shapes"), kernel->tensor_count);
  if (!kernel->name.empty() && !kernel->operation->has_call) {
    kernel->names = names_of(*kernel->operation, kernel->name, kernel->tensor_count);
  }
  kernel->inline_wait = InlineWait(attributes.number("is_last") != 0);
  return kernel.release();
}

void remove(void* kernel) { delete static_cast<Kernel*>(kernel); }

// Returns NULL after it has reported an error to TensorFlow.
PendingOperation* begin(const Kernel& kernel, Context* context, Done* done) {
  std::function<void()> kept = keep(done);
  const bool is_known = static_cast<bool>(kept);
  if (!is_known) kept = [done] { tf_api()->run_done(done); };  // must run before the kernel returns
  auto* work =
      new PendingOperation{kernel.operation, kernel.name, context, std::move(kept), {}, {}, 0};
  if (is_known && library() != nullptr) return work;
  finish(work, HVD_UNIMPLEMENTED,
         is_known
             ? "horovod.tensorflow is not loaded."
             : "the asynchronous kernels of this TensorFlow are made in a way that is not known "
               "here; use another TensorFlow.");
  return nullptr;
}

void compute(void* made, Context* context, Done* done) {
  const TfApi& api = *tf_api();
  const auto& kernel = *static_cast<const Kernel*>(made);
  PendingOperation* work = begin(kernel, context, done);
  if (work == nullptr) return;
  if (!take_tensors(api, work, kernel.shapes)) return finish(work, HVD_OK, nullptr);
  const int32_t process_set = kernel.process_set;
  Names numbered;
  const bool is_static = !kernel.name.empty() && !kernel.operation->has_call;
  if (kernel.name.empty()) {
    work->name = next_name(work->operation->prefix, process_set);
  } else if (!is_static) {
    int64_t call = 0;
    std::memcpy(&call, api.data(work->inputs.back()), sizeof call);
    work->name.insert(0, "call_" + std::to_string(call) + "/");
  }
  if (!is_static) numbered = names_of(*work->operation, work->name, kernel.tensor_count);
  const Names& names = is_static ? kernel.names : numbered;
  const Described described(api, *work, names, kernel.shapes);
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = work->operation->kind;
  submission.reduce_op = kernel.reduce_op;
  submission.name = names.request.c_str();
  submission.process_set = process_set;
  submission.root_rank = kernel.root_rank;
  submission.device = HVD_CPU;
  submission.flags = HVD_KEEPS_TENSORS;
  submission.prescale = kernel.prescale;
  submission.postscale = kernel.postscale;
  submission.tensor_count = static_cast<uint32_t>(described.tensors.size());
  submission.tensors = described.tensors.data();
  submission.split_count = static_cast<uint32_t>(described.splits.size());
  submission.wide_splits = described.splits.data();
  std::vector<char> error(kErrorSize);
  const int status = library()->submit(&submission, &work->handle, error.data(), error.size());
  if (status != HVD_OK) return finish(work, status, error.data());
  if (kernel.inline_wait.finishes(work)) return;
  await(work);
}

int ask(const Kernel& kernel, int32_t* number, char* error) {
  const Library& from = *library();
  const int32_t process_set = kernel.process_set;
  switch (kernel.what) {
    case 0:
      *number = from.rank();
      break;
    case 1:
      *number = from.local_rank();
      break;
    case 2:
      return from.size(process_set, number, error, kErrorSize);
    case 3:
      *number = from.local_size();
      break;
    case 5:
      *number = is_due(process_set) ? 1 : 0;
      return HVD_OK;
    default:
      return from.included(process_set, number, error, kErrorSize);
  }
  std::strncpy(error, "Horovod has not been initialized; use hvd.init() first.", kErrorSize);
  return *number < 0 ? HVD_FAILED_PRECONDITION : HVD_OK;
}

void compute_number(void* made, Context* context, Done* done) {
  const TfApi& api = *tf_api();
  const auto& kernel = *static_cast<const Kernel*>(made);
  PendingOperation* work = begin(kernel, context, done);
  if (work == nullptr) return;
  std::vector<char> error(kErrorSize);
  int32_t number = 0;
  const int asked = ask(kernel, &number, error.data());
  if (asked != HVD_OK) return finish(work, asked, error.data());
  Status* status = api.new_status();
  Tensor* tensor =
      api.allocate_output(context, 0, 3 /* int32 */, nullptr, 0, sizeof number, status);
  if (api.get_code(status) == kOk) {
    std::memcpy(api.data(tensor), &number, sizeof number);
    work->outputs.push_back(tensor);
  } else {
    api.failure(context, status);
  }
  api.delete_status(status);
  finish(work, HVD_OK, nullptr);
}

constexpr Create kCreate[kOperationCount] = {create<0>, create<1>, create<2>, create<3>,
                                             create<4>, create<5>, create<6>, create<7>,
                                             create<8>, create<9>, create<10>};

}  // namespace

void register_kernel(const TfApi& api, const Operation& operation, Status* status) {
  KernelBuilder* builder = api.new_kernel(operation.name, "CPU", kCreate[&operation - kOperations],
                                          operation.kind < 0 ? &compute_number : &compute, &remove);
  api.register_kernel(operation.name, builder, status);
}

}  // namespace hvd::tensorflow
