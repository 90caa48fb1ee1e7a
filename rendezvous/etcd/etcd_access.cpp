#include "rendezvous/etcd/etcd_access.h"

#include "base/check.h"
#include "base/secrets/token_file.h"
#include "base/text.h"

namespace hvd::rendezvous::etcd {
namespace {

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

}  // namespace hvd::rendezvous::etcd
