#include "rendezvous/wire/http_status.h"

namespace hvd::rendezvous {

int to_http(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
      return 400;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kFailedPrecondition:
      return 409;
    case Code::kAlreadyExists:
      return 412;
    case Code::kUnimplemented:
      return 501;
    case Code::kAborted:
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kInternal:
    case Code::kLeft:  // only used by the runtime
      return 500;
  }
  return 500;
}

Code from_http(int status) {
  switch (status) {
    case 200:
      return Code::kOk;
    case 401:
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 408:
    case 504:
      return Code::kDeadlineExceeded;
    case 409:
      return Code::kFailedPrecondition;
    case 412:
      return Code::kAlreadyExists;
    case 501:
      return Code::kUnimplemented;
    case 503:
      return Code::kAborted;
    default:
      return status >= 400 && status < 500 ? Code::kInvalidArgument : Code::kInternal;
  }
}

}  // namespace hvd::rendezvous
