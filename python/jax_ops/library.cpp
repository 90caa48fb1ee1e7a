#include "library.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "xla_ffi.h"

namespace hvd::jax {

namespace {

// The descriptions of a program, one for each compilation. Descriptions are never freed, because stall reports keep
// pointers to them.
struct Compilations {
  Mutex mutex;
  std::map<std::string, std::deque<std::string>> programs HVD_GUARDED_BY(mutex);
};

Compilations& compilations() {
  static Compilations* const compilations = new Compilations;
  return *compilations;
}

// The counters of models, by number: the reductions so far, and the reduction before which the ranks compare. Python owns
// the counters, and sets them while no program runs that counts the model's reductions.
struct Models {
  Mutex mutex;
  std::map<int64_t, int64_t*> counters HVD_GUARDED_BY(mutex);
  Compare compare HVD_GUARDED_BY(mutex) = nullptr;
};

Models& models() {
  static Models* const models = new Models;
  return *models;
}

struct Binding {
  Library library{};
  bool is_bound = false;
  int minor = 0;
};

Binding& binding() {
  // The object is never destroyed, because XLA's threads may outlive the program's static objects.
  static Binding* const binding = new Binding;
  return *binding;
}

}  // namespace

const Library* library() { return binding().is_bound ? &binding().library : nullptr; }

const char* description_of(const std::string& program) {
  Compilations& all = compilations();
  const MutexLock lock(all.mutex);
  const auto found = all.programs.find(program);
  return found == all.programs.end() ? nullptr : found->second.back().c_str();
}

Compare count_reduction(int64_t model) {
  Models& all = models();
  const MutexLock lock(all.mutex);
  const auto found = all.counters.find(model);
  if (found == all.counters.end()) return nullptr;
  int64_t* const counter = found->second;
  return ++counter[0] == counter[1] ? all.compare : nullptr;
}

int interface_minor() { return binding().minor; }

}  // namespace hvd::jax

// Functions that Python calls after it has loaded the library.
extern "C" {

// `minor`: the minor version of this XLA's FFI, whose major version is kFfiMajor.
__attribute__((visibility("default"))) void horovod_jax_bind(const hvd::jax::Library* library,
                                                             int32_t minor) {
  hvd::jax::binding().minor = std::min<int>(minor, hvd::jax::kFfiMinor);
  hvd::jax::binding().library = *library;
  hvd::jax::binding().is_bound = true;
}

// Counts the reductions of a model from now on. `counter`: two numbers that exist as long as the process.
__attribute__((visibility("default"))) void horovod_jax_count(int64_t model, int64_t* counter,
                                                              hvd::jax::Compare compare) {
  hvd::jax::Models& all = hvd::jax::models();
  const hvd::MutexLock lock(all.mutex);
  all.counters[model] = counter;
  all.compare = compare;
}

// Notes that JAX compiles a program of this name, which contains our operations.
__attribute__((visibility("default"))) void horovod_jax_note_compilation(const char* program) {
  hvd::jax::Compilations& all = hvd::jax::compilations();
  const hvd::MutexLock lock(all.mutex);
  auto& descriptions = all.programs[program];
  const size_t count = descriptions.size() + 1;
  std::string text = program;
  if (count > 1) {
    text += "; this rank compiled the program again (compilation " + std::to_string(count) + ")";
  }
  descriptions.push_back(std::move(text));
}
}
