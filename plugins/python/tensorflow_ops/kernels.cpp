#include "kernels.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "completion.h"
#include "described.h"
#include "inline_wait.h"
#include "library.h"

namespace hvd::tensorflow {

namespace {

// The attributes of a node of a graph.
struct Kernel {
  const Operation* operation;
  std::string name;
  int64_t what = 0, reduce_op = 0, root_rank = 0, process_set = 0;
  double prescale = 0, postscale = 0;
  size_t tensor_count = 0;
  std::vector<Shape> shapes;  // of the tensors, where the graph knows them all
  Names names;                // where the node has a name
  mutable InlineWait inline_wait;
};

// Reads attributes until one is missing.
class Attributes {
 public:
  Attributes(const TfApi& api, Construction* construction)
      : api_(api), construction_(construction), status_(api.new_status()) {}
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() {
    if (api_.get_code(status_) != kOk) api_.construction_failure(construction_, status_);
    api_.delete_status(status_);
  }

  int64_t number(const char* name) {
    int64_t value = 0;
    if (api_.get_code(status_) == kOk) api_.number(construction_, name, &value, status_);
    return value;
  }

  double factor(const char* name) {
    const int64_t bits = number(name);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  // Returns the number of entries of a list.
  size_t count(const char* name) {
    int32_t list = 0, total = 0;
    if (api_.get_code(status_) == kOk)
      api_.string_size(construction_, name, &list, &total, status_);
    return static_cast<size_t>(list < 0 ? 0 : list);
  }

  std::vector<int64_t> numbers(const char* name) {
    std::vector<int64_t> values(count(name));
    if (api_.get_code(status_) == kOk && !values.empty()) {
      api_.numbers(construction_, name, values.data(), static_cast<int>(values.size()), status_);
    }
    return values;
  }

  std::string text(const char* name) {
    int32_t list = 0, total = 0;
    if (api_.get_code(status_) == kOk) {
      api_.string_size(construction_, name, &list, &total, status_);
    }
    std::vector<char> value(static_cast<size_t>(total < 0 ? 0 : total) + 1);
    if (api_.get_code(status_) == kOk && value.size() > 1) {
      api_.string(construction_, name, value.data(), value.size() - 1, status_);
    }
    return std::string(value.data(), value.size() - 1);
  }

 private:
  const TfApi& api_;
  Construction* construction_;
  Status* status_;
};

// Each is a number of dimensions and those. Empty unless there are `count` of them.
std::vector<Shape> shapes_of(const std::vector<int64_t>& numbers, size_t count) {
  std::vector<Shape> shapes;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t dimensions = *at++;
    if (dimensions < 0 || dimensions > numbers.end() - at) return {};
    shapes.emplace_back(at, at + dimensions);
    at += dimensions;
  }
  return shapes.size() == count ? shapes : std::vector<Shape>();
}

// The calls through which a node has come into the graph that runs, "call/", outermost first. A function
// that another calls twice has its nodes twice, under one name each. Without TensorFlow's counters
// ("cond/then/_12/"), which count whatever else a rank's graph has.
std::string calls_of(std::string_view running, std::string_view made) {
  if (made.empty() || running.size() <= made.size() || !running.ends_with(made)) return {};
  std::string calls;
  running.remove_suffix(made.size());
  for (size_t end; (end = running.find('/')) != std::string_view::npos;
       running.remove_prefix(end + 1)) {
    const std::string_view part = running.substr(0, end);
    const bool is_counter = part.size() > 1 && part[0] == '_' &&
                            part.find_first_not_of("0123456789", 1) == std::string_view::npos;
    if (!is_counter) calls.append(part).push_back('/');
  }
  return calls;
}

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
  if (!kernel->name.empty()) {
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
  if (!is_known) kept = [done] { tf_api()->run_done(done); };  // before the kernel returns
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
  const auto process_set = static_cast<int32_t>(kernel.process_set);
  Names numbered;
  if (work->name.empty()) {
    work->name = next_name(work->operation->prefix, process_set);
    numbered = names_of(*work->operation, work->name, kernel.tensor_count);
  }
  const Names& names = kernel.name.empty() ? numbered : kernel.names;
  const Described described(api, *work, names, kernel.shapes);
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = work->operation->kind;
  submission.reduce_op = static_cast<int32_t>(kernel.reduce_op);
  submission.name = names.request.c_str();
  submission.process_set = process_set;
  submission.root_rank = static_cast<int32_t>(kernel.root_rank);
  submission.device = HVD_CPU;
  submission.prescale = kernel.prescale;
  submission.postscale = kernel.postscale;
  submission.tensor_count = static_cast<uint32_t>(described.tensors.size());
  submission.tensors = described.tensors.data();
  submission.split_count = static_cast<uint32_t>(described.splits.size());
  submission.splits = described.splits.data();
  std::vector<char> error(kErrorSize);
  const int status = library()->submit(&submission, &work->handle, error.data(), error.size());
  if (status != HVD_OK) return finish(work, status, error.data());
  if (kernel.inline_wait.finishes(work)) return;
  await(work);
}

int ask(const Kernel& kernel, int32_t* number, char* error) {
  const Library& from = *library();
  const auto process_set = static_cast<int32_t>(kernel.process_set);
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

constexpr Create kCreate[kOperationCount] = {create<0>, create<1>, create<2>,
                                             create<3>, create<4>, create<5>};

}  // namespace

void register_kernel(const TfApi& api, const Operation& operation, Status* status) {
  KernelBuilder* builder = api.new_kernel(operation.name, "CPU", kCreate[&operation - kOperations],
                                          operation.kind < 0 ? &compute_number : &compute, &remove);
  api.register_kernel(operation.name, builder, status);
}

}  // namespace hvd::tensorflow
