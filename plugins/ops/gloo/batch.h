// One batch through Gloo, on the thread that calls. Waits for the other members; throws what Gloo
// throws.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>

#include "horovod/plugin_op.h"

namespace hvd::ops::gloo_backend {

// `tag` is the same on all members, and differs from that of the batch before.
void run_batch(const std::shared_ptr<::gloo::Context>& context, const hvd_batch& batch,
               uint32_t tag);

}  // namespace hvd::ops::gloo_backend
