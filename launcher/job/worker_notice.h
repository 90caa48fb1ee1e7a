// Tells one of Horovod's own workers that hosts have changed. Functions without state; ElasticJob calls them
// on its loop.
#pragma once

#include "launcher/elastic/worker_address.h"
#include "net/asio.h"

namespace hvd::launcher {

// Tries one address after the other, for a few seconds each, until one answers. False: none does.
net::Task<bool> tell_worker(WorkerAddress worker, Bytes request);

}  // namespace hvd::launcher
