// Calls a function without Python's lock (the GIL).
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace hvd::python {

// Once Python has ended, it ends a thread that asks for the lock by pthread_exit() (before Python 3.14). The unwinding
// would release the references of the callers without the lock, and the process of a job that is done would crash. Such
// a thread waits here for the end of the process, as Python 3.14 lets it do.
inline void take_lock(PyThreadState* thread) {
  try {
    PyEval_RestoreThread(thread);
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

template <typename Function>
auto without_lock(const Function& function) {
  PyThreadState* const thread = PyEval_SaveThread();
  const auto result = function();
  take_lock(thread);
  return result;
}

}  // namespace hvd::python
