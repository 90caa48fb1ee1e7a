#include "base/shared_library.h"

#include <dlfcn.h>
#include <link.h>

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
  Status status = judge(*library);
  ::dlclose(library->handle_);
  return status;
}

std::string SharedLibrary::place() const {
  link_map* found = nullptr;
  const bool is_known = ::dlinfo(handle_, RTLD_DI_LINKMAP, &found) == 0 && *found->l_name != '\0';
  return is_known ? found->l_name : path_;
}

void* SharedLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

std::vector<std::string> loaded_libraries(std::string_view start) {
  struct Search {
    std::string_view start;
    std::vector<std::string> found;
  } search{start, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        auto* wanted = static_cast<Search*>(to);
        const std::string_view path(info->dlpi_name);
        if (path.substr(path.rfind('/') + 1).starts_with(wanted->start)) {
          wanted->found.emplace_back(path);
        }
        return 0;
      },
      &search);
  return search.found;
}

bool mpi_is_initialised() {
  for (const char* name : {"libmpi.so.", "libmpich.so."}) {
    for (const std::string& path : loaded_libraries(name)) {
      const auto library = SharedLibrary::open(path);
      void* asked = library.ok() ? library->symbol("MPI_Initialized") : nullptr;
      int yes = 0;
      if (asked != nullptr && reinterpret_cast<int (*)(int*)>(asked)(&yes) == 0 && yes != 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace hvd
