#include "base/shared_library.h"

#include <dlfcn.h>

#include "base/text.h"

namespace hvd {

Result<SharedLibrary> SharedLibrary::open(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return unavailable(reason != nullptr ? std::string(reason) : cat("cannot open ", path));
  }
  return SharedLibrary(path, handle);
}

void* SharedLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace hvd
