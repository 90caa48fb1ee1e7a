// The functions of the libhorovod that Python has opened, the version of XLA's interface, and the programs that JAX
// has compiled. Python sets the functions and the version when it loads this library; handler.cpp reads all on XLA's
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

// A parameter of a model: its elements, which are contiguous, their hvd_dtype, and their size.
struct Parameter {
  const void* data;
  int64_t dtype;
  int64_t bytes;
};

// Compares the parameters of a model between ranks. Returns HVD_OK, or another status and writes an error.
using Compare = int32_t (*)(int64_t model, const Parameter* parameters, int64_t count, char* error,
                            int64_t error_size);

// Counts a reduction of the model. Returns the function to call before this reduction, or NULL. Any thread.
Compare count_reduction(int64_t model);

// Returns the minor version of the FFI that this XLA accepts and this handler supports.
int interface_minor();

}  // namespace hvd::jax
