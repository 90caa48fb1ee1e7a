#include "base/status.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "base/check.h"

namespace hvd {

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) {
    failure_ = std::make_shared<const Failure>(Failure{code, std::move(message)});
  }
}

const std::string& Status::message() const {
  // Never destroyed: a library's thread may call this while the process exits.
  static const std::string& kEmpty = *new std::string;
  return failure_ ? failure_->message : kEmpty;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  std::string text(context);
  text += ": ";
  text += message();
  return Status(code(), std::move(text)).with_lost_rank(lost_rank());
}

Status Status::with_lost_rank(int32_t rank) const {
  if (rank == lost_rank()) return *this;
  Status same;
  if (failure_) same.failure_ = std::make_shared<const Failure>(Failure{code(), message(), rank});
  return same;
}

namespace {

// Returns the limit of this process that caused an error, and the command that raises it; else empty.
std::string limit_words(int error_number) {
  const auto limit_of = [](auto resource) {
    rlimit limit{};
    ::getrlimit(resource, &limit);
    return limit.rlim_cur;
  };
  if (error_number == EMFILE) {
    return "; this process may open " + std::to_string(limit_of(RLIMIT_NOFILE)) +
           ": raise that by ulimit -n";
  }
  if (error_number == ENOMEM && limit_of(RLIMIT_AS) != RLIM_INFINITY) {
    return "; this process may use " + std::to_string(limit_of(RLIMIT_AS) >> 20) +
           " MiB: raise that by ulimit -v";
  }
  return {};
}

}  // namespace

Status system_error(std::string_view what, int error_number) {
  std::string text(what);
  text += ": ";
  text += std::generic_category().message(error_number);
  text += limit_words(error_number);
  switch (error_number) {
    case ENOENT:
      return not_found(std::move(text));
    case EACCES:
    case EPERM:
      return permission_denied(std::move(text));
    case ETIMEDOUT:
      return deadline_exceeded(std::move(text));
    case EEXIST:
      return already_exists(std::move(text));
    default:
      return unavailable(std::move(text));
  }
}

// The filter of an old container runtime makes clone3 return EPERM. The C library uses clone
// instead only after ENOSYS.
std::string clone3_advice(int error_number) {
  constexpr long kClone3 = 435;  // on all architectures; older systems' headers lack its name
  if (error_number != EPERM || ::syscall(kClone3, nullptr, 0) == 0 || errno != EPERM) return {};
  return "the system call clone3 is refused here, as old container runtimes do; update the "
         "runtime, "
         "or start the container without its filter of system calls (docker run --security-opt "
         "seccomp=unconfined)";
}

Status status_of(const std::exception& thrown) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) {
    return internal_error(system_error("there is no memory left", ENOMEM).message());
  }
  const auto* of_system = dynamic_cast<const std::system_error*>(&thrown);
  if (of_system == nullptr) return internal_error(thrown.what());
  if (of_system->code().value() == EAGAIN) {
    return internal_error(
        "no thread can be started: Resource temporarily unavailable; the limits are those of "
        "ulimit -u and ulimit -v");
  }
  const std::string advice = clone3_advice(of_system->code().value());
  if (!advice.empty()) return internal_error("no thread can be started: " + advice);
  return internal_error(system_error("cannot go on", of_system->code().value()).message());
}

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "horovod: defect: %s does not hold (%s:%d)\n", condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hvd
