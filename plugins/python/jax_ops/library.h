// The libhorovod that Python has opened, and what XLA has said of its interface.
#pragma once

#include "horovod/horovod.h"
#include "xla_ffi.h"

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

// Remembers whether this interface will do, and sets in `version` what we are made for.
void note_interface(const FfiApi& api, FfiVersion* version);

}  // namespace hvd::jax
