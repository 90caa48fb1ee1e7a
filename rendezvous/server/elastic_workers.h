// The calls by which Horovod's own workers reach the launcher of an elastic job (PROTOCOL.md, "Unsigned"). The
// launcher gives them to the server, whose sessions call them on the server's loop.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace hvd::rendezvous {

// `worker` is "HOST:LOCAL_RANK", as the worker says it.
struct ElasticWorkers {
  // A worker asks for its next place: the key whose value will be the answer; empty for an unknown worker.
  std::function<std::string(std::string_view worker)> place_key;
  // A worker says where it can be told of changed hosts.
  std::function<void(std::string_view worker, ByteView address)> on_address;
};

}  // namespace hvd::rendezvous
