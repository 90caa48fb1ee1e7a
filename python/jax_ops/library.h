// The functions of the libhorovod that Python has opened, the version of XLA's interface, and the programs that JAX has
// compiled. Python sets the functions and the version when it imports this module; handler.cpp reads all on XLA's
// threads.
#pragma once

#include <string>

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

// Returns the program's name and the number of its compilations on this rank, for stall reports. NULL for a program
// unknown to horovod_jax_note_compilation. The text exists as long as the process. Any thread.
const char* description_of(const std::string& program);

// Returns the minor version of the FFI that this XLA accepts and this handler supports.
int interface_minor();

}  // namespace hvd::jax
