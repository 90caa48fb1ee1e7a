// By what a server proves itself to etcd, and etcd to it: as files, since nothing of it may stand on
// a command line.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "net/tls_session.h"

namespace hvd::rendezvous::etcd {

struct Access {
  std::optional<net::TlsOptions> tls = {};  // set: etcd speaks TLS
  std::string user = {};                    // empty: etcd has no users
  std::string password = {};
};

// What users give; each may be empty.
struct AccessFiles {
  std::string user;         // one line, USER:PASSWORD, closed to others
  std::string ca;           // PEM, as the two below
  std::string certificate;  // the server's own, for etcd
  std::string key;
};

// What is in the files, or of which of them it is not, for etcd as `access` says so far (its TLS).
// Errors name the flag.
Status read_files(const AccessFiles& files, Access& access);

}  // namespace hvd::rendezvous::etcd
