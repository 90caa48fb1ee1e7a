#include "net/endpoint.h"

#include <sys/un.h>

#include "base/text.h"

namespace hvd::net {
namespace {

// The last byte is the terminating NUL of a path; for an abstract name, '@' stands for the leading NUL.
constexpr size_t kMaxPath = sizeof(sockaddr_un{}.sun_path) - 1;

Status malformed(std::string_view text, std::string_view why) {
  return invalid_argument(cat("'", printable(text), "' is not an address: ", why,
                              " (unix:/path, unix:@name, tcp:host:port or tcp:[IPv6]:port)"));
}

Result<Endpoint> parse_unix(std::string_view text, std::string_view path) {
  if (path.empty() || path == "@") return malformed(text, "the path is empty");
  if (path.size() > kMaxPath) {
    return malformed(text, cat("the path is longer than ", kMaxPath, " bytes"));
  }
  if (path.front() != '@' && path.front() != '/') {
    return malformed(text, "the path is neither absolute nor begins with @");
  }
  if (path.find('\0') != std::string_view::npos) return malformed(text, "the path has a NUL byte");
  Endpoint endpoint;
  endpoint.family = Endpoint::Family::kUnix;
  endpoint.path = path;
  return endpoint;
}

bool is_host_text(std::string_view host) {
  for (const char c : host) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f || c == '/' || c == '[' || c == ']' || c == '@') return false;
  }
  return host.size() <= 255;
}

Result<Endpoint> parse_tcp(std::string_view text, std::string_view rest) {
  std::string_view host, port;
  if (!rest.empty() && rest.front() == '[') {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos || rest.substr(end + 1, 1) != ":") {
      return malformed(text, "the address in brackets is not followed by a port");
    }
    host = rest.substr(1, end - 1);
    port = rest.substr(end + 2);
    if (host.find(':') == std::string_view::npos) {
      return malformed(text, "there is no IPv6 address in the brackets");
    }
  } else {
    const size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos) return malformed(text, "the port is missing");
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) {
      return malformed(text, "an IPv6 address needs brackets");
    }
    if (host == "*") host = {};
  }
  if (!is_host_text(host)) return malformed(text, "the host has a character that no name has");
  const auto number = parse_int(port);
  if (!number || *number < 0 || *number > 65535 || port.front() == '-') {
    return malformed(text, "the port is not a number from 0 to 65535");
  }
  Endpoint endpoint;
  endpoint.host = host;
  endpoint.port = static_cast<uint16_t>(*number);
  return endpoint;
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text) {
  if (text.starts_with("unix:")) return parse_unix(text, text.substr(5));
  if (text.starts_with("tcp:")) return parse_tcp(text, text.substr(4));
  return malformed(text, "it begins with neither unix: nor tcp:");
}

std::string to_string(const Endpoint& endpoint) {
  if (endpoint.family == Endpoint::Family::kUnix) return "unix:" + endpoint.path;
  const bool bracketed = endpoint.host.find(':') != std::string::npos;
  return cat("tcp:", bracketed ? "[" : "", endpoint.host, bracketed ? "]" : "", ":", endpoint.port);
}

Result<PortRange> parse_port_range(std::string_view text) {
  if (text.empty()) return PortRange{};
  const size_t dash = text.find('-');
  const auto first = parse_int(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_int(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last > 65535 || *first > *last) {
    return invalid_argument(cat("--port-range: '", printable(text),
                                "' is not FIRST-LAST, two ports "
                                "from 1 to 65535 in order"));
  }
  return PortRange{static_cast<uint16_t>(*first), static_cast<uint16_t>(*last)};
}

}  // namespace hvd::net
