#include "library.h"

#include <algorithm>

#include "xla_ffi.h"

namespace hvd::jax {

namespace {

struct Binding {
  Library library{};
  bool is_bound = false;
  int minor = 0;
};

Binding& binding() {
  // Never destroyed: XLA's threads may outlive the program's static objects.
  static Binding* const binding = new Binding;
  return *binding;
}

}  // namespace

const Library* library() { return binding().is_bound ? &binding().library : nullptr; }

int interface_minor() { return binding().minor; }

}  // namespace hvd::jax

// Functions that Python calls after it has loaded the library.
extern "C" {

// `minor`: of this XLA's FFI, whose major version is kFfiMajor.
__attribute__((visibility("default"))) void horovod_jax_bind(const hvd::jax::Library* library,
                                                             int32_t minor) {
  hvd::jax::binding().minor = std::min<int>(minor, hvd::jax::kFfiMinor);
  hvd::jax::binding().library = *library;
  hvd::jax::binding().is_bound = true;
}
}
