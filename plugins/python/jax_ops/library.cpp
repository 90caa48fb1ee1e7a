#include "library.h"

#include <algorithm>

#include "xla_ffi.h"

namespace hvd::jax {

namespace {

struct Kept {
  Library library{};
  bool is_bound = false;
  int minor = 0;
};

Kept& kept() {
  // Never destroyed: XLA's threads may outlive the program's static objects.
  static Kept* const kept = new Kept;
  return *kept;
}

}  // namespace

const Library* library() { return kept().is_bound ? &kept().library : nullptr; }

int interface_minor() { return kept().minor; }

}  // namespace hvd::jax

// Functions that Python calls after it has loaded the library.
extern "C" {

// `minor`: of this XLA's FFI, whose major version is kFfiMajor.
__attribute__((visibility("default"))) void horovod_jax_bind(const hvd::jax::Library* library,
                                                             int32_t minor) {
  hvd::jax::kept().minor = std::min<int>(minor, hvd::jax::kFfiMinor);
  hvd::jax::kept().library = *library;
  hvd::jax::kept().is_bound = true;
}
}
