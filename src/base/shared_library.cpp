#include "base/shared_library.h"

#include <dlfcn.h>

#include "base/text.h"

namespace hvd {

Result<SharedLibrary> SharedLibrary::open(const std::string& path) {
  return open(path, RTLD_NOW | RTLD_LOCAL);
}

Result<SharedLibrary> SharedLibrary::open_for_all(const std::string& path) {
  return open(path, RTLD_NOW | RTLD_GLOBAL);
}

Result<SharedLibrary> SharedLibrary::open(const std::string& path, int flags) {
  void* handle = ::dlopen(path.c_str(), flags);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return unavailable(reason != nullptr ? std::string(reason) : cat("cannot open ", path));
  }
  return SharedLibrary(path, handle);
}

Status SharedLibrary::try_open(const std::string& path,
                               const std::function<Status(const SharedLibrary&)>& judge) {
  auto library = open(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library.ok()) return library.error();
  const Status status = judge(*library);
  ::dlclose(library->handle_);
  return status;
}

void* SharedLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace hvd
