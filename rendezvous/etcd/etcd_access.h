// The address of an etcd cluster, and a server's credentials for it: user, password and TLS certificates. The
// credentials come from files, since a command line is visible to other users. Stateless.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/endpoint.h"
#include "net/tls/tls_session.h"

namespace hvd::rendezvous::etcd {

struct Access {
  std::optional<net::TlsOptions> tls = {};  // set: etcd uses TLS
  std::string user = {};                    // empty: etcd has no users
  std::string password = {};
};

// Paths from the flags --etcd-...; each may be empty.
struct AccessFiles {
  std::string user;         // one line, USER:PASSWORD; other users may not read the file
  std::string ca;           // PEM: authorities that sign etcd's certificate
  std::string certificate;  // PEM: client certificate of the rendezvous server
  std::string key;          // PEM: key of `certificate`
};

// Adds the content of the files to `access`, whose `tls` parse_url has set. An error names the flag and
// the file.
Status read_files(const AccessFiles& files, Access& access);

struct Url {
  std::vector<net::Endpoint> endpoints;  // members of one cluster
  std::string prefix;  // prefix of all keys, without a '/' at its end; empty: the default prefix
  Access access = {};  // only `tls` is set, for etcds://
};

// Parses --backend: "etcd://host:2379,host2:2379/prefix", or "etcds://..." for TLS.
Result<Url> parse_url(std::string_view text);

}  // namespace hvd::rendezvous::etcd
