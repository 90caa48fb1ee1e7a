// MUNGE credentials, which only processes of one user on the machines of one cluster can decode. Opens
// the library at run time. Any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::bootstrap {

class Munge {
 public:
  static Result<Munge> open();

  // Makes a credential for this process's user. A shared credential is valid as long as munged allows, an hour
  // by default, since ranks may wait for each other; any other credential is valid for five minutes.
  Result<std::string> seal(ByteView message, bool is_shared = false) const;
  // Opens a credential that another process of this user has sealed. Each host may read a
  // credential once, or, if it is shared, once per process.
  Result<Bytes> unseal(const std::string& credential, bool is_shared = false) const;

 private:
  struct Context;
  using Create = Context* (*)();
  using Destroy = void (*)(Context*);
  using Set = int (*)(Context*, int option, ...);
  using Encode = int (*)(char** credential, Context*, const void* data, int size);
  using Decode = int (*)(const char* credential, Context*, void** data, int* size, unsigned* uid,
                         unsigned* gid);
  using Explain = const char* (*)(int code);

  Status failure(const char* what, int code) const;

  Create create_ = nullptr;
  Destroy destroy_ = nullptr;
  Set set_ = nullptr;
  Encode encode_ = nullptr;
  Decode decode_ = nullptr;
  Explain explain_ = nullptr;
};

}  // namespace hvd::bootstrap
