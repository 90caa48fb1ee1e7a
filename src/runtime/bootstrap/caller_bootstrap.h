// Bootstrap by the caller of hvd_init, which passes this process's rank and a function that copies a text
// from rank 0 to all ranks (hvd_init_options.share). Rank 0 serves the store until its shutdown.
#pragma once

#include <functional>

#include "runtime/bootstrap/identity.h"

namespace hvd::runtime {

struct CallerPlace {
  int32_t rank = 0;
  int32_t size = 0;
  // Copies rank 0's text to all ranks; returns false on failure.
  std::function<bool(std::string* text)> share;
};

Result<Bootstrap> bootstrap_by_caller(const CallerPlace& place, const WorkerSettings& settings);

}  // namespace hvd::runtime
