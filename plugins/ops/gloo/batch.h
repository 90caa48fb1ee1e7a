// Runs one batch through Gloo on the calling thread, the communicator's LibraryThread. Waits for the
// other members. Exceptions of Gloo pass through.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>

#include "horovod/plugin_op.h"

namespace hvd::ops::gloo_backend {

// `tag` must be equal on all members, and differ from the previous batch's.
void run_batch(const std::shared_ptr<::gloo::Context>& context, const hvd_batch& batch,
               uint32_t tag);

}  // namespace hvd::ops::gloo_backend
