// The notice of changed hosts to one of Horovod's own workers: the address where it listens, a pickled Python
// object, and the request to it. Nothing is unpickled: the decoder knows a few operations, calls nothing, and
// refuses everything else. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::launcher {

struct WorkerAddress {
  std::vector<std::pair<std::string, uint16_t>> addresses;  // IP addresses, of all interfaces
  Bytes key;                                                // signs the requests to it
};

constexpr size_t kMaxWorkerAddress = 64 * 1024;  // bytes

// `text`: a tuple of a dictionary from interfaces to lists of (address, port), and of a key of 32 bytes,
// pickled, in base64.
Result<WorkerAddress> decode_worker_address(ByteView text);

// The request that hosts have changed: a digest, the length, and the pickled object. `updates` as
// rendezvous::HostUpdates; a worker ignores a `time` (in seconds) that is no later than the last one.
Bytes hosts_updated_request(ByteView key, int32_t time, int32_t updates);

}  // namespace hvd::launcher
