#include "library.h"

#include <map>
#include <utility>

#include "base/mutex.h"
#include "horovod/types.h"

namespace hvd::tensorflow {
namespace {

constexpr struct {
  int tensorflow;
  int32_t horovod;
  size_t size;
} kDtypes[] = {
    {1, HVD_FLOAT32, 4},   {2, HVD_FLOAT64, 8}, {3, HVD_INT32, 4},    {4, HVD_UINT8, 1},
    {5, HVD_INT16, 2},     {6, HVD_INT8, 1},    {9, HVD_INT64, 8},    {10, HVD_BOOL, 1},
    {14, HVD_BFLOAT16, 2}, {17, HVD_UINT16, 2}, {19, HVD_FLOAT16, 2}, {22, HVD_UINT32, 4},
    {23, HVD_UINT64, 8},
};

constexpr const char* kTypes =
    "T: list({float, double, int32, uint8, int16, int8, int64, bool, bfloat16, uint16, half, "
    "uint32, uint64}) >= 1";

void shapes_of_inputs(ShapeContext* context, Status* status) {
  const TfApi& api = *tf_api();
  for (int i = 0; i < api.shape_inputs(context) && api.get_code(status) == kOk; ++i) {
    ShapeHandle* shape = api.new_shape();
    api.shape_of_input(context, i, shape, status);
    if (api.get_code(status) == kOk) api.set_shape(context, i, shape, status);
    api.delete_shape(shape);
  }
  if (api.get_code(status) == kOk) return;
  // TensorFlow 2.4 refuses every index except 0. Python sets the shapes that it knows.
  api.set_status(status, kOk, "");
  api.unknown_shapes(context, status);
}

void shapes_unknown(ShapeContext* context, Status* status) {
  tf_api()->unknown_shapes(context, status);
}

struct Binding {
  Mutex mutex;
  Library library{};
  bool is_bound = false;
  std::map<std::pair<int32_t, std::string>, uint64_t> numbers HVD_GUARDED_BY(mutex);
  std::map<int32_t, int64_t> reductions_left HVD_GUARDED_BY(mutex);  // by check of replicas
  std::string problem;
};

Binding& binding() {
  // The object is never destroyed, because TensorFlow's threads may outlive the program's static objects.
  static Binding* const binding = new Binding;
  return *binding;
}

void register_all() {
  const TfApi* api = tf_api();
  if (api == nullptr) {
    binding().problem = std::string("it has no ") + missing_function();
    return;
  }
  Status* status = api->new_status();
  for (const Operation& operation : kOperations) {
    register_operation(*api, operation, status);
    if (api->get_code(status) == kOk) register_kernel(*api, operation, status);
    if (api->get_code(status) != kOk) {
      binding().problem = std::string(operation.name) + ": " + api->message(status);
      break;
    }
  }
  api->delete_status(status);
}

// Registers the operations while tf.load_op_library loads this library, because TensorFlow then looks for them.
const bool registered = (register_all(), true);

}  // namespace

const Operation kOperations[kOperationCount] = {
    {"HorovodAllreduce", "allreduce", HVD_ALLREDUCE, true, false, false},
    {"HorovodBroadcast", "broadcast", HVD_BROADCAST, true, false, false},
    {"HorovodAllgather", "allgather", HVD_ALLGATHER, false, false, false},
    {"HorovodReducescatter", "reducescatter", HVD_REDUCESCATTER, false, false, false},
    {"HorovodAlltoall", "alltoall", HVD_ALLTOALL, false, true, false},
    {"HorovodNumber", "", -1, false, false, false},
    {"HorovodAllreduceInCall", "allreduce", HVD_ALLREDUCE, true, false, true},
    {"HorovodBroadcastInCall", "broadcast", HVD_BROADCAST, true, false, true},
    {"HorovodAllgatherInCall", "allgather", HVD_ALLGATHER, false, false, true},
    {"HorovodReducescatterInCall", "reducescatter", HVD_REDUCESCATTER, false, false, true},
    {"HorovodAlltoallInCall", "alltoall", HVD_ALLTOALL, false, true, true},
};

int32_t dtype_of_tensorflow(int dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.tensorflow == dtype) return entry.horovod;
  }
  return -1;
}

int dtype_for_tensorflow(int32_t dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.horovod == dtype) return entry.tensorflow;
  }
  return 0;
}

size_t size_of_dtype(int32_t dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.horovod == dtype) return entry.size;
  }
  return 0;
}

void register_operation(const TfApi& api, const Operation& operation, Status* status) {
  OpBuilder* builder = api.new_op(operation.name);
  if (operation.kind >= 0) {
    api.op_attribute(builder, kTypes);
    // An empty tensor_name: the call gets a number when it runs.
    api.op_attribute(builder, "tensor_name: string = ''");
    api.op_attribute(builder, "node: string = ''");  // the node's name in its first graph
    api.op_attribute(builder, "reduce_op: int = 1");
    api.op_attribute(builder, "root_rank: int = 0");
    api.op_attribute(builder, "prescale_bits: int = 0");  // bits of a double; 0: no factor
    api.op_attribute(builder, "postscale_bits: int = 0");
    api.op_attribute(builder,
                     "is_last: int = 0");  // 1: no other work is due, so a thread may wait briefly
    // For each tensor with a fixed shape: the number of dimensions, then the dimensions. Empty: the shapes come from
    // the tensors at run time.
    api.op_attribute(builder, "shapes: list(int) = []");
    api.op_input(builder, "tensors: T");
    if (operation.has_splits) api.op_input(builder, "splits: int64");
    if (operation.has_call) api.op_input(builder, "call: int64");
    api.op_output(builder, "results: T");
    if (operation.has_splits) api.op_output(builder, "received_splits: int32");
  } else {
    api.op_attribute(builder, "what: int = 0");  // see library.h
    api.op_output(builder, "number: int32");
  }
  api.op_attribute(builder, "process_set: int = 0");
  // Stateful: other ranks wait even for an unused result, and TensorFlow must not merge two equal calls.
  api.op_is_stateful(builder, true);
  const bool has_output_for_each_input = operation.keeps_shapes && !operation.has_call;
  api.op_shapes(builder, has_output_for_each_input ? &shapes_of_inputs : &shapes_unknown);
  api.register_op(builder, status);
}

const Library* library() { return binding().is_bound ? &binding().library : nullptr; }

std::string next_name(const char* prefix, int32_t process_set) {
  Binding& all = binding();
  const MutexLock lock(all.mutex);
  return "tf.noname." + std::to_string(++all.numbers[{process_set, prefix}]);
}

bool is_due(int32_t check) {
  Binding& all = binding();
  const MutexLock lock(all.mutex);
  const auto at = all.reductions_left.find(check);
  if (at == all.reductions_left.end()) return false;
  if (at->second == 0) return true;
  --at->second;
  return false;
}

}  // namespace hvd::tensorflow

// Functions that Python calls after it has loaded the library.
extern "C" {

// Returns "", or the reason why the registration failed.
__attribute__((visibility("default"))) const char* horovod_tensorflow_problem() {
  return hvd::tensorflow::binding().problem.c_str();
}

__attribute__((visibility("default"))) void horovod_tensorflow_bind(
    const hvd::tensorflow::Library* library) {
  hvd::tensorflow::binding().library = *library;
  hvd::tensorflow::binding().is_bound = true;
}

// Restarts the counters of unnamed calls of the process set, or of all sets if it is negative, at 1.
__attribute__((visibility("default"))) void horovod_tensorflow_forget_names(int32_t process_set) {
  auto& all = hvd::tensorflow::binding();
  const hvd::MutexLock lock(all.mutex);
  for (auto at = all.numbers.begin(); at != all.numbers.end();) {
    at = process_set < 0 || at->first.first == process_set ? all.numbers.erase(at) : std::next(at);
  }
}

__attribute__((visibility("default"))) int32_t horovod_tensorflow_is_due(int32_t check) {
  return hvd::tensorflow::is_due(check) ? 1 : 0;
}

// Lets `left` reductions of a check run before the next one that is due. Forgets the check if `left` is negative.
__attribute__((visibility("default"))) void horovod_tensorflow_count_down(int32_t check,
                                                                          int64_t left) {
  auto& all = hvd::tensorflow::binding();
  const hvd::MutexLock lock(all.mutex);
  if (left < 0) {
    all.reductions_left.erase(check);
  } else {
    all.reductions_left[check] = left;
  }
}
}
