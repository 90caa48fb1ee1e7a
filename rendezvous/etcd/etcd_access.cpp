#include "rendezvous/etcd/etcd_access.h"

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"

namespace hvd::rendezvous::etcd {

namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr std::string_view kTlsScheme = "etcds://";
constexpr std::string_view kPort = ":2379";
constexpr size_t kLongestPrefix = 512;
constexpr size_t kLongestUserFile = 4096;

Status read_user(const std::string& path, Access& access) {
  const std::string shown = cat("--etcd-user-file: ", printable(path));
  HVD_ASSIGN_OR_RETURN(const std::string text, read_private_file(path, shown, kLongestUserFile));
  std::string_view line(text);
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == line.size() ||
      line.find('\n') != std::string_view::npos) {
    return invalid_argument(cat(shown, " does not hold one line USER:PASSWORD"));
  }
  access.user = line.substr(0, colon);
  access.password = line.substr(colon + 1);
  return {};
}

}  // namespace

Status read_files(const AccessFiles& files, Access& access) {
  if (!files.user.empty()) HVD_RETURN_IF_ERROR(read_user(files.user, access));
  if (files.ca.empty() && files.certificate.empty()) return {};
  if (!access.tls) {
    return invalid_argument(
        "--etcd-ca and --etcd-cert are for an etcd with TLS: write "
        "--backend etcds://HOST:2379");
  }
  access.tls->ca_file = files.ca;
  access.tls->certificate = files.certificate;
  access.tls->key = files.key;
  const auto tried = net::TlsSession::client("localhost", *access.tls);
  return tried.ok() ? Status() : tried.status();
}

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
