// The functions of the runtime core and the progress engine that a service uses. Observation makes it.
#pragma once

#include <functional>

#include "base/bytes.h"

namespace hvd::runtime {

struct ServiceLinks {
  std::function<void(ByteView)> to_root;
  std::function<void(ByteView)> to_all;
  // Runs a function with the progress lock held, soon. Any thread.
  std::function<void(std::function<void()>)> post;
};

}  // namespace hvd::runtime
