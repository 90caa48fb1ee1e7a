// The state of the native module: its functions of libhorovod and the work in flight. One per interpreter that imports
// the module; guarded by Python's lock (the GIL).
#pragma once

#include <Python.h>

#include "horovod/horovod.h"
#include "reference.h"

namespace hvd::python {

class Devices;  // device.h

struct ModuleState {
  // Functions of the library that horovod._library has opened; NULL until `bind`.
  decltype(&::hvd_submit) submit;
  decltype(&::hvd_poll) poll;
  decltype(&::hvd_wait) wait;
  decltype(&::hvd_get_output) get_output;
  decltype(&::hvd_release) release;
  decltype(&::hvd_is_provisional) is_provisional;
  decltype(&::hvd_start) start;
  decltype(&::hvd_group_submit) group_submit;
  decltype(&::hvd_wait_on_stream) wait_on_stream;

  PyObject* fail;  // fail(status, message, negotiated) raises the exception for a failure
  // Key: handle. Value: the result itself, or (finish, objects to keep alive); for work that another thread must begin,
  // also a function that raises if the work will never begin.
  PyObject* pending;
  PyObject* abandoned;  // list of pending handles without a Python owner
  PyObject* lost;       // set of handles that were pending at the last shutdown
  unsigned long main_thread;
  Devices* devices;  // NULL until use_devices
  int survivals;  // running calls of hvd.elastic.run: while one runs, an error after `synchronize` does not end the
      // process

  // Names of a tensor's attributes, created once.
  PyObject* name_of_dtype;
  PyObject* name_of_shape;
  PyObject* name_of_layout;
  PyObject* name_of_is_cpu;
  PyObject* name_of_is_cuda;
  PyObject* name_of_get_device;
  PyObject* name_of_data_ptr;
  PyObject* name_of_is_contiguous;
  PyObject* name_of_grad;
  PyObject* name_of_array_struct;
  PyObject* names_of_arguments;  // the argument names of an in-place allreduce, a tuple
};

constexpr size_t kErrorSize = 4096;

inline ModuleState* state_of(PyObject* module) {
  return static_cast<ModuleState*>(PyModule_GetState(module));
}

template <typename Function>
void take_address(Function* function, unsigned long long address) {
  *function = reinterpret_cast<Function>(static_cast<uintptr_t>(address));
}

// Raises by ModuleState::fail. Always returns NULL.
PyObject* raise_failure(ModuleState* state, int status, const char* message, bool negotiated);

// Submits work, and keeps `entry` in ModuleState::pending until the handle is released. Returns the handle.
PyObject* hand_over(ModuleState* state, hvd_submission submission, PyObject* entry);

// Keeps `entry` in ModuleState::pending until the handle is released. Returns the handle.
PyObject* keep_pending(ModuleState* state, hvd_handle handle, PyObject* entry);

// Waits for the work, and returns its status; -1 with the exception of a signal handler or of `check`, which may be
// NULL; HVD_IN_PROGRESS after `limit` seconds (negative: no limit). `stream`: NULL, or the caller's stream, which then
// waits for work on the device's own stream.
int wait_for_end(ModuleState* state, hvd_handle handle, PyObject* check, double limit,
                 char (&error)[kErrorSize], void* const* stream = nullptr);

// Releases a handle. `entry`: its pending entry, which is never freed if a library may still use the
// tensors.
void release(ModuleState* state, hvd_handle handle, PyObject* entry);

// Waits like `wait`, for a caller that does not keep the handle. An interrupt abandons the work.
Reference finish(PyObject* module, PyObject* handle);

// The functions of the module; module.cpp describes their arguments.
PyObject* submit(PyObject* module, PyObject* arguments);
PyObject* group_submit(PyObject* module, PyObject* arguments);
PyObject* group_reduce(PyObject* module, PyObject* arguments);
PyObject* start_after(PyObject* module, PyObject* arguments);
PyObject* use_devices(PyObject* module, PyObject* arguments);
PyObject* ready_stream(PyObject* module, PyObject* device);
PyObject* is_finishing_early(PyObject* module, PyObject*);
PyObject* complete_early(PyObject* module, PyObject* limit);
PyObject* survive(PyObject* module, PyObject* change);
PyObject* poll(PyObject* module, PyObject* handle);
PyObject* wait(PyObject* module, PyObject* handle);
PyObject* wait_for(PyObject* module, PyObject* arguments);
PyObject* synchronize(PyObject* module, PyObject* handle);
PyObject* fast_path(PyObject* module, PyObject* arguments);
PyObject* output(PyObject* module, PyObject* arguments);
PyObject* abandon(PyObject* module, PyObject* handle);
PyObject* release_all(PyObject* module, PyObject*);
PyObject* bucket_new(PyObject* module, PyObject* arguments);
PyObject* bucket_gather(PyObject* module, PyObject* arguments);
PyObject* bucket_submit(PyObject* module, PyObject* arguments);
PyObject* bucket_scatter(PyObject* module, PyObject* bucket);
PyObject* bucket_place(PyObject* module, PyObject* arguments);
PyObject* bucket_run(PyObject* module, PyObject* arguments);

// Releases abandoned work that is complete. Returns false with an exception set on failure.
bool sweep(ModuleState* state);

}  // namespace hvd::python
