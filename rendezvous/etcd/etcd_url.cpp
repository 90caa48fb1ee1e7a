#include "rendezvous/etcd/etcd_url.h"

#include "base/text.h"

namespace hvd::rendezvous::etcd {
namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr std::string_view kTlsScheme = "etcds://";
constexpr std::string_view kPort = ":2379";
constexpr size_t kLongestPrefix = 512;

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto malformed = [&](std::string_view why) {
    return invalid_argument(cat("'", printable(text), "' is not a backend: ", why,
                                "; write etcd://HOST:2379, or etcd://HOST:2379,HOST:2379/PREFIX"));
  };
  const bool is_encrypted = text.starts_with(kTlsScheme);
  if (!is_encrypted && !text.starts_with(kScheme)) {
    return malformed("it does not begin with etcd:// or etcds://");
  }
  const std::string_view rest = text.substr((is_encrypted ? kTlsScheme : kScheme).size());
  const size_t slash = rest.find('/');
  // The error does not show the text, since it may contain a password.
  if (rest.substr(0, slash).find('@') != std::string_view::npos) {
    return invalid_argument(
        "the address of etcd contains a user, and other users can read a command line: write "
        "USER:PASSWORD into a file for --etcd-user-file");
  }
  Url url;
  if (is_encrypted) url.access.tls = net::TlsOptions{.ca_setting = "--etcd-ca"};
  for (const std::string& host : split(rest.substr(0, slash), ',')) {
    if (host.empty()) return malformed("a host is missing");
    // A colon inside the brackets of an IPv6 address begins no port.
    const bool has_port =
        host.find(':', host.rfind(']') == std::string::npos ? 0 : host.rfind(']')) !=
        std::string::npos;
    const auto endpoint = net::parse_endpoint(cat("tcp:", host, has_port ? "" : kPort));
    if (!endpoint.ok()) return malformed(endpoint.status().message());
    if (endpoint->host.empty() || endpoint->port == 0) {
      return malformed(cat("'", host, "' has no host or no port"));
    }
    url.endpoints.push_back(*endpoint);
  }
  if (url.endpoints.empty()) return malformed("a host is missing");
  if (slash != std::string_view::npos) url.prefix = rest.substr(slash);
  while (url.prefix.ends_with('/')) url.prefix.pop_back();
  if (url.prefix.size() > kLongestPrefix) {
    return malformed(cat("its prefix is longer than ", kLongestPrefix, " bytes"));
  }
  return url;
}

}  // namespace hvd::rendezvous::etcd
