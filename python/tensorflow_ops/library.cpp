#include "library.h"

#include <map>
#include <utility>

#include "base/mutex.h"
#include "kernels.h"
#include "operations.h"

namespace hvd::tensorflow {

namespace {

struct Binding {
  Mutex mutex;
  Library library{};
  bool is_bound = false;
  std::map<std::pair<int32_t, std::string>, uint64_t> numbers HVD_GUARDED_BY(mutex);
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

const Library* library() { return binding().is_bound ? &binding().library : nullptr; }

std::string next_name(const char* prefix, int32_t process_set) {
  Binding& all = binding();
  const MutexLock lock(all.mutex);
  return "tf.noname." + std::to_string(++all.numbers[{process_set, prefix}]);
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
}
