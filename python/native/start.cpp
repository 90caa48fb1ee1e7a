// Begins work whose inputs a device stream copies, once the stream has completed the copies.
#include <atomic>

#include "state.h"
#include "without_lock.h"

namespace hvd::python {
namespace {

// cudaLaunchHostFunc, or hipLaunchHostFunc.
using LaunchHostFunction = int(void* stream, void (*function)(void*), void* argument);

// hvd_start of the library. A global variable, because host functions do not get the module.
std::atomic<decltype(&::hvd_start)> start_function{nullptr};

// Called by a thread of the driver. Passes the handle as the argument, because the work may have ended meanwhile.
void on_reached(void* handle) {
  start_function.load()(static_cast<hvd_handle>(reinterpret_cast<uintptr_t>(handle)), nullptr, 0);
}

}  // namespace

PyObject* start_after(PyObject* module, PyObject* arguments) {
  unsigned long long launch = 0, stream = 0, handle = 0;
  if (!PyArg_ParseTuple(arguments, "KKK", &launch, &stream, &handle)) return nullptr;
  start_function.store(state_of(module)->start);
  void* const argument = reinterpret_cast<void*>(static_cast<uintptr_t>(handle));
  int error = 0;
  if (launch == 0) {
    on_reached(argument);
  } else {
    // The call blocks if the stream's queue is full, so other Python threads must run.
    const auto function = reinterpret_cast<LaunchHostFunction*>(static_cast<uintptr_t>(launch));
    error = without_lock([&] {
      return function(reinterpret_cast<void*>(static_cast<uintptr_t>(stream)), on_reached,
                      argument);
    });
  }
  return PyLong_FromLong(error);
}

}  // namespace hvd::python
