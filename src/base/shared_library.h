// Opens a shared library at run time. Never closes it, because a thread may be executing its code. Any
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd {

class SharedLibrary {
 public:
  // A path, or a name that the dynamic linker looks for. Its symbols stay its own (RTLD_LOCAL).
  static Result<SharedLibrary> open(const std::string& path);
  // The same, and its symbols are found by whatever is opened later (RTLD_GLOBAL).
  static Result<SharedLibrary> open_for_all(const std::string& path);

  // Whether it can be opened and `judge` is content with it; it does not stay.
  static Status try_open(const std::string& path,
                         const std::function<Status(const SharedLibrary&)>& judge);

  // nullptr when the library has no such symbol.
  void* symbol(const char* name) const;
  const std::string& path() const { return path_; }
  // The path that it was found at.
  std::string place() const;

 private:
  static Result<SharedLibrary> open(const std::string& path, int flags);
  SharedLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}
  std::string path_;
  void* handle_;
};

// The paths of those libraries that this process has whose file's name begins so.
std::vector<std::string> loaded_libraries(std::string_view start);

// Whether this process has an MPI that somebody has initialised.
bool mpi_is_initialised();

}  // namespace hvd
