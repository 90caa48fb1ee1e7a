// Calls a function without Python's lock (the GIL).
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace hvd::python {

// After its end, Python before 3.14 calls pthread_exit() in a thread that requests the lock. The unwinding of the
// thread's stack would release the callers' references without the lock, and crash the process of a completed job.
// Therefore such a thread waits here for the end of the process, as it does in Python 3.14.
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
