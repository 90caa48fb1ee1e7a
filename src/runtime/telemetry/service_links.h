// The functions of the runtime core and of the progress engine that a service uses. Class Observation sets them.
#pragma once

#include <functional>

#include "base/bytes.h"

namespace hvd::runtime {

struct ServiceLinks {
  std::function<void(ByteView)> to_root;
  std::function<void(ByteView)> to_all;
  // Queues a function, which runs with the progress lock held. Any thread.
  std::function<void(std::function<void()>)> post;
};

}  // namespace hvd::runtime
