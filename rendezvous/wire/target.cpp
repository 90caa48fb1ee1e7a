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

constexpr std::string_view kSet = "set ";
constexpr std::string_view kRemoved = "removed ";
constexpr std::string_view kMore = "more";
constexpr std::string_view kEnd = "end";
constexpr char kSwapped = '1';
constexpr char kOther = '0';
constexpr char kAbsent = '-';

Status malformed(std::string_view what) {
  return internal_error(cat("the server's answer to ", what, " is malformed"));
}

// Takes the next line, without its '\n'; returns false at the end.
bool take_line(std::string_view* text, std::string_view* line) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return false;
  *line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return true;
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

std::string to_text(const KeyPage& page) {
  std::string text(page.more ? kMore : kEnd);
  text += '\n';
  for (const std::string& key : page.keys) text.append(net::percent_encode(key)).append("\n");
  return text;
}

Result<KeyPage> parse_keys(ByteView bytes) {
  std::string_view text = as_text(bytes);
  std::string_view line;
  if (!take_line(&text, &line) || (line != kMore && line != kEnd)) return malformed("list");
  KeyPage page;
  page.more = line == kMore;
  while (take_line(&text, &line)) {
    auto key = net::percent_decode(line);
    if (!key.ok()) return malformed("list");
    page.keys.push_back(std::move(*key));
  }
  if (!text.empty()) return malformed("list");
  return page;
}

std::string to_text(const Changes& changes) {
  std::string text = std::to_string(changes.revision);
  text += '\n';
  for (const Changes::Change& change : changes.changes) {
    text.append(change.removed ? kRemoved : kSet).append(net::percent_encode(change.key));
    text += '\n';
  }
  return text;
}

Result<Changes> parse_changes(ByteView bytes) {
  std::string_view text = as_text(bytes);
  std::string_view line;
  if (!take_line(&text, &line)) return malformed("watch");
  const auto revision = parse_int(line);
  if (!revision || *revision < 0) return malformed("watch");
  Changes changes{static_cast<uint64_t>(*revision), {}};
  while (take_line(&text, &line)) {
    const bool removed = line.starts_with(kRemoved);
    if (!removed && !line.starts_with(kSet)) return malformed("watch");
    line.remove_prefix(removed ? kRemoved.size() : kSet.size());
    auto key = net::percent_decode(line);
    if (!key.ok()) return malformed("watch");
    changes.changes.push_back({std::move(*key), removed});
  }
  if (!text.empty()) return malformed("watch");
  return changes;
}

std::string to_text(bool swapped, const Bytes* value) {
  std::string text(1, swapped ? kSwapped : value != nullptr ? kOther : kAbsent);
  if (value != nullptr) text += as_text(*value);
  return text;
}

Result<Swap> parse_swap(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  if (text == std::string_view(&kAbsent, 1)) return Swap{};
  if (text.empty() || (text[0] != kSwapped && text[0] != kOther)) return malformed("swap");
  return Swap{text[0] == kSwapped, to_bytes(text.substr(1))};
}

}  // namespace hvd::rendezvous
