// Where an etcd is, as users write it: "etcd://host:2379,host2:2379/prefix"; by TLS "etcds://". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/endpoint.h"
#include "rendezvous/etcd/etcd_access.h"

namespace hvd::rendezvous::etcd {

struct Url {
  std::vector<net::Endpoint> endpoints;  // of one cluster
  std::string prefix;  // of all keys, without the '/' behind it; empty: none given
  Access access = {};  // what the text says: whether TLS is spoken
};

Result<Url> parse_url(std::string_view text);

}  // namespace hvd::rendezvous::etcd
