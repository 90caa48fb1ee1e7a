// Opens a shared library at run time. Libraries stay open, because a thread may be executing their code. Only
// try_open() closes its library. Any thread.
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

  // Opens the library, calls `judge`, and closes the library. Returns the first error.
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

// Finds the symbols of a library, for a record whose members hold them:
//   struct Functions { SymbolFinder find; Init* init = find("Init"); };
class SymbolFinder {
 public:
  // `prefix`: the beginning of all names.
  explicit SymbolFinder(SharedLibrary library, std::string prefix = {})
      : library_(std::move(library)), prefix_(std::move(prefix)) {}

  // The address of a symbol, for a pointer of any type.
  struct Symbol {
    void* address;
    template <typename Type>
    operator Type*() const {
      return reinterpret_cast<Type*>(address);
    }
  };
  Symbol operator()(const char* name) {
    const Symbol found = may(name);
    if (found.address == nullptr && missing_.empty()) missing_ = prefix_ + name;
    return found;
  }
  // Finds a symbol that the library may lack.
  Symbol may(const char* name) const { return {library_.symbol((prefix_ + name).c_str())}; }
  // Returns the first symbol, except those of may(), that the library lacks; empty: none.
  const std::string& missing() const { return missing_; }
  const SharedLibrary& library() const { return library_; }

 private:
  SharedLibrary library_;
  std::string prefix_;
  std::string missing_;
};

// Returns the paths of this process's libraries whose file name begins with `start`.
std::vector<std::string> loaded_libraries(std::string_view start);

// Returns whether an MPI library in this process has been initialised.
bool mpi_is_initialised();

}  // namespace hvd
