#include "base/status.h"

#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace hvd {

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) {
    failure_ = std::make_shared<const Failure>(Failure{code, std::move(message)});
  }
}

const std::string& Status::message() const {
  // Never destroyed: a thread of a library may ask while the process exits.
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

Status system_error(std::string_view what, int error_number) {
  std::string text(what);
  text += ": ";
  text += std::generic_category().message(error_number);
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

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "horovod: defect: %s does not hold (%s:%d)\n", condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hvd
