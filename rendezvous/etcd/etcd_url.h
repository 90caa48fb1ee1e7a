// Parses the address of an etcd cluster from --backend: "etcd://host:2379,host2:2379/prefix", or
// "etcds://..." for TLS. No state and no I/O; called by horovod-rendezvous.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/endpoint.h"
#include "rendezvous/etcd/etcd_access.h"

namespace hvd::rendezvous::etcd {

struct Url {
  std::vector<net::Endpoint> endpoints;  // members of one cluster
  std::string prefix;  // prefix of all keys, without a '/' at its end; empty: the default prefix
  Access access = {};  // only `tls` is set, for etcds://
};

Result<Url> parse_url(std::string_view text);

}  // namespace hvd::rendezvous::etcd
