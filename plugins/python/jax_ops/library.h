// The functions of the libhorovod that Python has opened, and the version of XLA's interface. Python sets both when it
// imports this module; handler.cpp reads them on XLA's threads.
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

// Returns NULL until Python has set the library.
const Library* library();

// Returns the minor version of the FFI that this XLA accepts and this handler supports.
int interface_minor();

}  // namespace hvd::jax
