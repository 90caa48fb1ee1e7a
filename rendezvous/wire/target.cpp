#include "rendezvous/wire/target.h"

#include "base/text.h"
#include "net/http.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kRoot = "/v1/";
constexpr size_t kMaxParameters = 16;

Status parse_query(std::string_view text, Target& target) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      return invalid_argument(cat("'", printable(pair), "' in the query has no value"));
    }
    HVD_ASSIGN_OR_RETURN(std::string name, net::percent_decode(pair.substr(0, equals)));
    HVD_ASSIGN_OR_RETURN(std::string value, net::percent_decode(pair.substr(equals + 1)));
    const std::string shown = printable(name);
    if (!target.query.emplace(std::move(name), std::move(value)).second) {
      return invalid_argument(cat("the query has the parameter '", shown, "' twice"));
    }
    if (target.query.size() > kMaxParameters) {
      return invalid_argument(cat("the query has more than ", kMaxParameters, " parameters"));
    }
  }
  return {};
}

}  // namespace

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

std::optional<std::string_view> Target::text(std::string_view parameter) const {
  const auto found = query.find(parameter);
  if (found == query.end()) return {};
  return found->second;
}

Result<std::optional<int64_t>> Target::number(std::string_view parameter, int64_t least,
                                              int64_t most) const {
  const auto found = text(parameter);
  if (!found) return std::optional<int64_t>();
  const auto value = parse_int(*found);
  if (!value || *value < least || *value > most) {
    return invalid_argument(cat("'", parameter, "=", printable(*found, 40),
                                "' is not a whole number from ", least, " to ", most));
  }
  return std::optional<int64_t>(*value);
}

std::string to_string(const Target& target) {
  std::string text(kRoot);
  text += target.resource;
  if (!target.name.empty()) text.append("/").append(net::percent_encode(target.name));
  char separator = '?';
  for (const auto& [name, value] : target.query) {
    text += separator;
    text.append(net::percent_encode(name)).append("=").append(net::percent_encode(value));
    separator = '&';
  }
  return text;
}

Result<Target> parse_target(std::string_view text) {
  const size_t question = text.find('?');
  std::string_view path = text.substr(0, question);
  if (!path.starts_with(kRoot)) {
    return not_found(cat("there is no resource '", printable(path), "': paths begin with /v1/"));
  }
  path.remove_prefix(kRoot.size());
  Target target;
  const size_t slash = path.find('/');
  target.resource = path.substr(0, slash);
  if (slash != std::string_view::npos) {
    const std::string_view name = path.substr(slash + 1);
    if (name.find('/') != std::string_view::npos) {
      return invalid_argument("a '/' in a name is written %2F");
    }
    HVD_ASSIGN_OR_RETURN(target.name, net::percent_decode(name));
  }
  if (question != std::string_view::npos) {
    HVD_RETURN_IF_ERROR(parse_query(text.substr(question + 1), target));
  }
  return target;
}

}  // namespace hvd::rendezvous
