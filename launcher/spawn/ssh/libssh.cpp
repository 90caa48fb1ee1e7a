#include "launcher/spawn/ssh/libssh.h"

#include "base/check.h"
#include "base/shared_library.h"

namespace hvd::launcher {
namespace {

Result<LibsshFunctions> load() {
  HVD_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open("libssh.so.4"));
  LibsshFunctions found;
#define HVD_LIBSSH_FIND(name)                                                 \
  found.name = reinterpret_cast<decltype(found.name)>(library.symbol(#name)); \
  if (found.name == nullptr) return unavailable("this machine's libssh has no " #name);
  HVD_LIBSSH_FUNCTIONS(HVD_LIBSSH_FIND)
#undef HVD_LIBSSH_FIND
  return found;
}

}  // namespace

const Result<LibsshFunctions>& libssh() {
  static const Result<LibsshFunctions> loaded = load();
  return loaded;
}

}  // namespace hvd::launcher
