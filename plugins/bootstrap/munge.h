// MUNGE credentials, which only processes of one user on the machines of one cluster can decode. Opens
// the library at run time. Any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/shared_library.h"

namespace hvd::bootstrap {

class Munge {
 public:
  static Result<Munge> open();

  // Makes a credential for this process's user. A shared credential is valid for the longest time that munged allows,
  // an hour by default, since ranks may wait for each other. Any other credential is valid for five minutes.
  Result<std::string> seal(ByteView message, bool is_shared = false) const;
  // Opens a credential that another process of this user has sealed. Each host may read a credential only once, but a
  // shared credential any number of times.
  Result<Bytes> unseal(const std::string& credential, bool is_shared = false) const;

 private:
  explicit Munge(SharedLibrary library) : find_(std::move(library)) {}

  struct Context;
  using Create = Context* (*)();
  using Destroy = void (*)(Context*);
  using Set = int (*)(Context*, int option, ...);
  using Encode = int (*)(char** credential, Context*, const void* data, int size);
  using Decode = int (*)(const char* credential, Context*, void** data, int* size, unsigned* uid,
                         unsigned* gid);
  using Explain = const char* (*)(int code);

  Status failure(const char* what, int code) const;

  SymbolFinder find_;
  Create create_ = find_("munge_ctx_create");
  Destroy destroy_ = find_("munge_ctx_destroy");
  Set set_ = find_("munge_ctx_set");
  Encode encode_ = find_("munge_encode");
  Decode decode_ = find_("munge_decode");
  Explain explain_ = find_("munge_strerror");
};

}  // namespace hvd::bootstrap
