// Owns a reference to a Python object, and releases it at the end of its scope.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <utility>

namespace hvd::python {

class Reference {
 public:
  Reference() = default;
  explicit Reference(PyObject* owned) : object_(owned) {}
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Reference() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* give() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Takes Python's lock. After the end of Python, versions before 3.14 call pthread_exit() in a thread that requests the
// lock. The unwinding of the thread's stack would release the callers' references without the lock, and crash the
// process of a completed job. Therefore such a thread waits here for the end of the process, as it does in Python 3.14.
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
