// Opens a shared library at run time. Never closes a library, because a thread may be executing its code.
// Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd {

class SharedLibrary {
 public:
  // Opens a path, or a name that the dynamic linker looks up. The library's symbols stay local (RTLD_LOCAL).
  static Result<SharedLibrary> open(const std::string& path);
  // Like open(), but libraries opened later find the library's symbols (RTLD_GLOBAL).
  static Result<SharedLibrary> open_for_all(const std::string& path);

  // Opens the library, calls `judge`, and does not keep the library loaded. Returns the first error.
  static Status try_open(const std::string& path,
                         const std::function<Status(const SharedLibrary&)>& judge);

  // Returns the symbol's address; nullptr if the library lacks the symbol.
  void* symbol(const char* name) const;
  const std::string& path() const { return path_; }
  // Returns the path of the loaded file.
  std::string place() const;

 private:
  static Result<SharedLibrary> open(const std::string& path, int flags);
  SharedLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}
  std::string path_;
  void* handle_;
};

// Returns the paths of this process's libraries whose file name begins with `start`.
std::vector<std::string> loaded_libraries(std::string_view start);

// Returns whether an MPI library in this process has been initialised.
bool mpi_is_initialised();

}  // namespace hvd
