#include "bootstrap/munge.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "base/text.h"

namespace hvd::bootstrap {
namespace {

// MUNGE_OPT_UID_RESTRICTION and MUNGE_OPT_TTL of munge.h, whose ABI has not changed since version 0.5.
constexpr int kRestrictToUser = 9;
constexpr int kTimeToLive = 4;
constexpr int kLongest = -1;  // the longest lifetime that munged allows
// EMUNGE_CRED_REPLAYED: the credential is valid, and a process of this host has read it before.
constexpr int kWasRead = 17;

}  // namespace

Result<Munge> Munge::open() {
  auto library = SharedLibrary::open("libmunge.so.2");
  if (!library.ok()) {
    return library.error().with_context("MUNGE's library (Debian: libmunge2) cannot be opened");
  }
  Munge munge(*std::move(library));
  if (!munge.find_.missing().empty()) {
    return unavailable(cat(munge.find_.library().path(), " is no library of MUNGE 0.5"));
  }
  return munge;
}

Status Munge::failure(const char* what, int code) const {
  return unavailable(cat(what, ": MUNGE says: ", explain_(code)));
}

Result<std::string> Munge::seal(ByteView message, bool is_shared) const {
  const std::unique_ptr<Context, Destroy> context(create_(), destroy_);
  if (context == nullptr) return unavailable("MUNGE has no memory");
  if (const int code = set_(context.get(), kRestrictToUser, ::geteuid()); code != 0) {
    return failure("cannot seal for this user", code);
  }
  if (const int code = is_shared ? set_(context.get(), kTimeToLive, kLongest) : 0; code != 0) {
    return failure("cannot seal for ranks that start later", code);
  }
  char* credential = nullptr;
  const int code =
      encode_(&credential, context.get(), message.data(), static_cast<int>(message.size()));
  const std::unique_ptr<char, decltype(&std::free)> owned(credential, &std::free);
  if (code != 0) return failure("cannot seal", code);
  return std::string(credential);
}

Result<Bytes> Munge::unseal(const std::string& credential, bool is_shared) const {
  void* data = nullptr;
  int size = 0;
  unsigned uid = 0, gid = 0;
  const int code = decode_(credential.c_str(), nullptr, &data, &size, &uid, &gid);
  const std::unique_ptr<void, decltype(&std::free)> owned(data, &std::free);
  if (code != 0 && !(is_shared && code == kWasRead)) {
    return failure("cannot unseal what rank 0 sent", code);
  }
  if (uid != ::geteuid()) {
    return permission_denied(
        cat("user ", uid, " sealed what should be rank 0's; this is user ", ::geteuid()));
  }
  const auto* bytes = static_cast<const std::byte*>(data);
  return Bytes(bytes, bytes + size);
}

}  // namespace hvd::bootstrap
