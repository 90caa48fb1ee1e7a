#include "library.h"

#include <algorithm>
#include <string>

namespace hvd::jax {

namespace {

struct Kept {
  Library library{};
  bool is_bound = false;
  std::string problem;
};

Kept& kept() {
  // Never destroyed: XLA's threads may outlive the program's static objects.
  static Kept* const kept = new Kept;
  return *kept;
}

}  // namespace

const Library* library() { return kept().is_bound ? &kept().library : nullptr; }

void note_interface(const FfiApi& api, FfiVersion* version) {
  const FfiVersion& theirs = api.version;
  if (theirs.major != kFfiMajor || api.struct_size < sizeof(FfiApi)) {
    kept().problem = "its FFI is version " + std::to_string(theirs.major) + "." +
                     std::to_string(theirs.minor) +
                     (theirs.major == kFfiMajor ? ", which has no asynchronous calls" : "");
  }
  version->minor = std::min(theirs.minor, kFfiMinor);
}

}  // namespace hvd::jax

// What Python calls once the library is loaded.
extern "C" {

// "" or why this XLA cannot run the operations; known once the handler has been registered.
__attribute__((visibility("default"))) const char* horovod_jax_problem() {
  return hvd::jax::kept().problem.c_str();
}

__attribute__((visibility("default"))) void horovod_jax_bind(const hvd::jax::Library* library) {
  hvd::jax::kept().library = *library;
  hvd::jax::kept().is_bound = true;
}
}
