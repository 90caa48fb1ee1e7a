// Poll, wait and output: from a handle to the result of its work.
#include <algorithm>
#include <chrono>
#include <string>

#include "device.h"
#include "reference.h"
#include "state.h"

namespace hvd::python {

namespace {

// The longest time in seconds that a wait on the main thread stays in C, where Python cannot run a signal handler.
constexpr double kSlice = 0.05;
// Seconds between two checks whether work that other threads must begin can still begin.
constexpr double kCheck = 1;

bool read_handle(PyObject* number, hvd_handle* handle) {
  *handle = PyLong_AsUnsignedLongLong(number);
  return *handle != static_cast<hvd_handle>(-1) || PyErr_Occurred() == nullptr;
}

// Returns the pending entry of the handle, borrowed; NULL with an exception if the handle has none.
PyObject* pending_entry(ModuleState* state, PyObject* handle) {
  PyObject* entry = PyDict_GetItemWithError(state->pending, handle);
  if (entry == nullptr && PyErr_Occurred() == nullptr) {
    PyErr_Format(PyExc_ValueError, "Handle %S is not one that waits to be synchronized.", handle);
  }
  return entry;
}

bool is_lost(ModuleState* state, PyObject* handle) {
  return PyErr_Occurred() == nullptr && PySet_Contains(state->lost, handle) == 1;
}

// Raises the error for a handle that was pending at the last shutdown. Raises this error only once.
PyObject* raise_lost(ModuleState* state, PyObject* handle) {
  PySet_Discard(state->lost, handle);
  return raise_failure(state, HVD_ABORTED,
                       "the work of this handle was not synchronized before hvd.shutdown()", true);
}

using Clock = std::chrono::steady_clock;

// Returns the seconds of the next wait in C; -1: until the work is complete. `check` and `limit`: see wait_for_end.
double next_slice(const ModuleState* state, PyObject* check, double limit,
                  Clock::time_point since) {
  const double most = PyThread_get_thread_ident() == state->main_thread ? kSlice
                      : check != nullptr                                ? kCheck
                                                                        : -1;
  if (limit < 0) return most;
  const double left =
      std::max(0.0, limit - std::chrono::duration<double>(Clock::now() - since).count());
  return most < 0 ? left : std::min(most, left);
}

PyObject* tuple_of_shape(const hvd_output& output) {
  Reference shape(PyTuple_New(output.ndim));
  for (int32_t i = 0; shape && i < output.ndim; ++i) {
    PyObject* extent = PyLong_FromLongLong(output.shape[i]);
    if (extent == nullptr) return nullptr;
    PyTuple_SetItem(shape.get(), i, extent);
  }
  return shape.give();
}

PyObject* list_of_splits(const hvd_output& output) {
  if (output.received_splits == nullptr) Py_RETURN_NONE;
  Reference splits(PyList_New(output.received_split_count));
  for (uint32_t i = 0; splits && i < output.received_split_count; ++i) {
    PyObject* rows = PyLong_FromLong(output.received_splits[i]);
    if (rows == nullptr) return nullptr;
    PyList_SetItem(splits.get(), i, rows);
  }
  return splits.give();
}

}  // namespace

int wait_for_end(ModuleState* state, hvd_handle handle, PyObject* check, double limit,
                 char (&error)[kErrorSize], void* const* stream) {
  int32_t done = 0;
  int status = state->poll(handle, &done, error, sizeof error);
  if (status == HVD_OK && done != 0) return state->wait(handle, 0, error, sizeof error);
  const auto since = limit < 0 ? Clock::time_point() : Clock::now();
  double unchecked = 0;
  for (;;) {
    const double seconds = next_slice(state, check, limit, since);
    const int ends_process = state->survivals == 0 ? 1 : 0;
    status = without_lock([&] {
      if (stream == nullptr) return state->wait(handle, seconds, error, sizeof error);
      return state->wait_on_stream(handle, *stream, ends_process, seconds, error, sizeof error);
    });
    if (PyErr_CheckSignals() != 0) return -1;
    if (status != HVD_IN_PROGRESS || seconds == 0) return status;
    unchecked += seconds;
    if (check == nullptr || unchecked < kCheck) continue;
    unchecked = 0;
    const Reference checked(PyObject_CallFunctionObjArgs(check, nullptr));
    if (!checked) return -1;
  }
}

void release(ModuleState* state, hvd_handle handle, PyObject* entry) {
  const bool is_in_use = state->release(handle, nullptr, 0) == HVD_IN_PROGRESS;
  if (is_in_use) Py_XINCREF(entry);
  if (state->devices != nullptr) state->devices->released(handle, is_in_use);
}

PyObject* poll(PyObject* module, PyObject* number) {
  ModuleState* state = state_of(module);
  hvd_handle handle = 0;
  char error[kErrorSize];
  int32_t done = 0;
  if (is_lost(state, number)) Py_RETURN_TRUE;
  if (pending_entry(state, number) == nullptr || !read_handle(number, &handle)) return nullptr;
  const int status = state->poll(handle, &done, error, sizeof error);
  if (status != HVD_OK) return raise_failure(state, status, error, false);
  return PyBool_FromLong(done);
}

namespace {

// Raises the error of completed work, or an earlier error of work that failed after the wait for it had returned.
void raise_error(ModuleState* state, int status, const char* error) {
  if (state->devices != nullptr) state->devices->sweep(state);
  const std::string late = state->devices == nullptr ? "" : state->devices->late_error();
  raise_failure(state, status, late.empty() ? error : late.c_str(), true);
}

// Returns the result of work that has succeeded: the pending entry itself, or the result of its finish function.
Reference result_of_entry(ModuleState* state, PyObject* number, PyObject* entry, bool is_early) {
  if (!PyTuple_CheckExact(entry)) {
    Py_INCREF(entry);
    return Reference(entry);
  }
  // Keep the pointer for both calls: the finish function may create state->devices.
  Devices* const devices = state->devices;
  if (devices != nullptr) devices->begin_finish(is_early);
  Reference result(PyObject_CallFunctionObjArgs(PyTuple_GetItem(entry, 0), number, nullptr));
  if (devices != nullptr) devices->end_finish();
  return result;
}

// `found` is the pending entry of the handle. `limit`: seconds after which the function raises TimeoutError and the
// handle stays valid; negative: no limit.
PyObject* result_of(ModuleState* state, PyObject* number, PyObject* found, double limit = -1) {
  hvd_handle handle = 0;
  if (!read_handle(number, &handle)) return nullptr;
  Py_INCREF(found);
  const Reference kept(found);
  char error[kErrorSize];
  const bool awaits_start = PyTuple_CheckExact(found) && PyTuple_Size(found) == 3;
  PyObject* const check = awaits_start ? PyTuple_GetItem(found, 2) : nullptr;
  void* stream = nullptr;
  const bool is_early = state->devices != nullptr && state->devices->waits_early(handle, &stream);
  if (is_early && !state->devices->complete_some(state)) return nullptr;
  const int status = wait_for_end(state, handle, check, limit, error, is_early ? &stream : nullptr);
  if (status == -1) return nullptr;  // interrupted: the handle stays valid
  if (status == HVD_IN_PROGRESS) {
    PyErr_SetString(PyExc_TimeoutError, "the work is not complete");
    return nullptr;
  }
  // Another thread may have waited too, and have removed the entry.
  if (PyDict_DelItem(state->pending, number) != 0) PyErr_Clear();
  if (status != HVD_OK) {
    raise_error(state, status, error);
    release(state, handle, kept.get());
    return nullptr;
  }
  Reference result = result_of_entry(state, number, found, is_early);
  if (!is_early) {
    release(state, handle, kept.get());
    return result.give();
  }
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  Py_INCREF(found);
  state->devices->hold(state, handle, Reference(found), stream);
  if (type != nullptr) PyErr_Restore(type, value, trace);
  return result.give();
}

}  // namespace

PyObject* wait(PyObject* module, PyObject* number) {
  ModuleState* state = state_of(module);
  if (is_lost(state, number)) return raise_lost(state, number);
  PyObject* found = pending_entry(state, number);
  return found == nullptr ? nullptr : result_of(state, number, found);
}

PyObject* wait_for(PyObject* module, PyObject* arguments) {
  PyObject* number = nullptr;
  double limit = 0;
  if (!PyArg_ParseTuple(arguments, "Od", &number, &limit)) return nullptr;
  ModuleState* state = state_of(module);
  if (is_lost(state, number)) return raise_lost(state, number);
  PyObject* found = pending_entry(state, number);
  return found == nullptr ? nullptr : result_of(state, number, found, limit);
}

Reference finish(PyObject* module, PyObject* number) {
  Reference result(wait(module, number));
  if (!result) {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    Reference done(abandon(module, number));
    PyErr_Restore(type, value, trace);
  }
  return result;
}

PyObject* synchronize(PyObject* module, PyObject* number) {
  ModuleState* state = state_of(module);
  PyObject* found = PyDict_GetItemWithError(state->pending, number);
  if (found != nullptr) return result_of(state, number, found);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (is_lost(state, number)) return raise_lost(state, number);
  Py_RETURN_NONE;
}

PyObject* output(PyObject* module, PyObject* arguments) {
  ModuleState* state = state_of(module);
  unsigned long long handle = 0;
  unsigned int index = 0;
  if (!PyArg_ParseTuple(arguments, "KI", &handle, &index)) return nullptr;
  hvd_output found{};
  found.struct_size = sizeof found;
  char error[kErrorSize];
  const int status = state->get_output(handle, index, &found, error, sizeof error);
  if (status != HVD_OK) return raise_failure(state, status, error, false);
  Reference shape(tuple_of_shape(found));
  Reference splits(list_of_splits(found));
  if (!shape || !splits) return nullptr;
  return Py_BuildValue("KiOOiii", reinterpret_cast<unsigned long long>(found.data), found.dtype,
                       shape.get(), splits.get(), found.last_joined_rank, found.process_set,
                       found.device);
}

PyObject* abandon(PyObject* module, PyObject* number) {
  ModuleState* state = state_of(module);
  if (PyDict_GetItemWithError(state->pending, number) != nullptr) {
    if (PyList_Append(state->abandoned, number) != 0) return nullptr;
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

bool sweep(ModuleState* state) {
  for (Py_ssize_t i = PyList_Size(state->abandoned) - 1; i >= 0; --i) {
    Reference number(PyList_GetItem(state->abandoned, i));
    Py_INCREF(number.get());
    hvd_handle handle = 0;
    int32_t done = 0;
    if (!read_handle(number.get(), &handle)) return false;
    // If the runtime no longer knows a handle, the program has waited for the handle in the meantime.
    if (state->poll(handle, &done, nullptr, 0) == HVD_OK && done == 0) continue;
    if (PyList_SetSlice(state->abandoned, i, i + 1, nullptr) != 0) return false;
    release(state, handle, PyDict_GetItem(state->pending, number.get()));
    if (PyDict_DelItem(state->pending, number.get()) != 0) PyErr_Clear();
  }
  return true;
}

PyObject* release_all(PyObject* module, PyObject*) {
  ModuleState* state = state_of(module);
  Reference handles(PyDict_Keys(state->pending));
  const Py_ssize_t count = handles ? PyList_Size(handles.get()) : -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    hvd_handle handle = 0;
    PyObject* const number = PyList_GetItem(handles.get(), i);
    if (!read_handle(number, &handle)) return nullptr;
    release(state, handle, PyDict_GetItem(state->pending, number));
  }
  // Forget handles of earlier shutdowns, so that the set does not grow in a job of many generations.
  if (count < 0 || (count > 0 && PySet_Clear(state->lost) != 0)) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const number = PyList_GetItem(handles.get(), i);
    const int is_abandoned = PySequence_Contains(state->abandoned, number);
    if (is_abandoned < 0) return nullptr;
    if (is_abandoned == 0 && PySet_Add(state->lost, number) != 0) return nullptr;
  }
  PyDict_Clear(state->pending);
  if (state->devices != nullptr) state->devices->forget(state);
  PyList_SetSlice(state->abandoned, 0, PyList_Size(state->abandoned), nullptr);
  Py_RETURN_NONE;
}

}  // namespace hvd::python
