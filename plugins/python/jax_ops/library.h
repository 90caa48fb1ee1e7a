// The libhorovod that Python has opened, and the version of XLA's interface.
#pragma once

#include "horovod/horovod.h"

namespace hvd::jax {

struct Library {
  decltype(&::hvd_submit) submit;
  decltype(&::hvd_wait) wait;
  decltype(&::hvd_poll) poll;
  decltype(&::hvd_get_output) get_output;
  decltype(&::hvd_release) release;
};

// NULL until Python has said which.
const Library* library();

// The minor version of the FFI that this XLA takes handlers of, and we are made for.
int interface_minor();

}  // namespace hvd::jax
