#include "device.h"

#include <algorithm>

namespace hvd::python {
namespace {

constexpr unsigned kDisableTiming = 2;

bool is_factor(double value) { return value != 1 && value != 0; }

}  // namespace

bool Devices::read(const ModuleState* state, const Framework& framework, PyObject* tensor,
                   DenseTensor* out) {
  return reinterpret_cast<PyObject*>(Py_TYPE(tensor)) == type_.get() &&
         read_by_attributes(state, tensor, framework, state->name_of_is_cuda, out);
}

// Python adds to the dict what it has submitted itself.
bool Devices::runs(const ModuleState* state, PyObject* tensor, const hvd_submission& submission,
                   int32_t dtype) {
  const bool has_factors = is_factor(submission.prescale) || is_factor(submission.postscale);
  const Terms terms{dtype, submission.reduce_op, has_factors};
  if (std::find(known_.begin(), known_.end(), terms) != known_.end()) return true;
  Reference kind(PyLong_FromLong(submission.op)), operation(PyLong_FromLong(submission.reduce_op));
  Reference factor(PyFloat_FromDouble(has_factors ? 0.5 : 1.0));
  Reference type(PyObject_GetAttr(tensor, state->name_of_dtype));
  if (!kind || !operation || !factor || !type) return false;
  Reference key(PyTuple_Pack(4, kind.get(), type.get(), operation.get(), factor.get()));
  if (!key || PyDict_GetItemWithError(runs_.get(), key.get()) != Py_True) return false;
  known_.push_back(terms);
  return true;
}

bool Devices::find_stream(const ModuleState* state, PyObject* tensor, hvd_submission* submission) {
  Reference device(PyObject_CallMethodObjArgs(tensor, state->name_of_get_device, nullptr));
  if (!device) return false;
  submission->device = static_cast<int32_t>(PyLong_AsLong(device.get()));
  if (submission->device < 0) return false;
  if (device_ == HVD_CPU) device_ = submission->device;
  Reference stream(PyObject_CallFunctionObjArgs(current_stream_.get(), device.get(), nullptr));
  if (!stream) return false;
  submission->stream = PyLong_AsVoidPtr(stream.get());
  int is_capturing = 0;
  return PyErr_Occurred() == nullptr && device_ == submission->device &&
         calls_.stream_is_capturing(submission->stream, &is_capturing) == 0 && is_capturing == 0;
}

// Returns an event after the stream's work, or NULL.
void* Devices::record(void* stream) {
  void* event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  } else if (calls_.event_create(&event, kDisableTiming) != 0) {
    return nullptr;
  }
  if (calls_.event_record(event, stream) == 0) return event;
  calls_.event_destroy(event);  // of the thread's device, which is another one
  return nullptr;
}

bool Devices::submit(ModuleState* state, const Framework& framework, PyObject* tensor,
                     hvd_submission submission, Reference* handle) {
  DenseTensor dense;
  if (state->is_provisional() != 0 || !read(state, framework, tensor, &dense) ||
      !runs(state, tensor, submission, dense.view.dtype) ||
      !find_stream(state, tensor, &submission)) {
    return false;
  }
  submission.tensor_count = 1;
  submission.tensors = &dense.view;
  void* const event = submission.ready_event = record(submission.stream);
  if (event == nullptr) return false;
  *handle = Reference(hand_over(state, submission, tensor));
  if (*handle) {
    used_[PyLong_AsUnsignedLongLong(handle->get())] = event;
  } else {
    free_.push_back(event);
  }
  return true;
}

void Devices::released(hvd_handle handle, bool is_in_use) {
  const auto found = used_.find(handle);
  if (found == used_.end()) return;
  if (!is_in_use) free_.push_back(found->second);
  used_.erase(found);
}

PyObject* use_devices(PyObject* module, PyObject* arguments) {
  unsigned long long create = 0, destroy = 0, record = 0, is_capturing = 0;
  PyObject *type = nullptr, *current_stream = nullptr, *runs = nullptr;
  if (!PyArg_ParseTuple(arguments, "KKKKOOO!", &create, &destroy, &record, &is_capturing, &type,
                        &current_stream, &PyDict_Type, &runs)) {
    return nullptr;
  }
  Devices::Calls calls{};
  take_address(&calls.event_create, create);
  take_address(&calls.event_destroy, destroy);
  take_address(&calls.event_record, record);
  take_address(&calls.stream_is_capturing, is_capturing);
  ModuleState* state = state_of(module);
  if (state->devices == nullptr) {
    for (PyObject* kept : {type, current_stream, runs}) Py_INCREF(kept);
    state->devices =
        new Devices(calls, Reference(type), Reference(current_stream), Reference(runs));
  }
  Py_RETURN_NONE;
}

}  // namespace hvd::python
