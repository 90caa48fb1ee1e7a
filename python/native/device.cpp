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

bool Devices::find_device(const ModuleState* state, PyObject* tensor, hvd_submission* submission) {
  Reference device(PyObject_CallMethodObjArgs(tensor, state->name_of_get_device, nullptr));
  if (!device) return false;
  submission->device = static_cast<int32_t>(PyLong_AsLong(device.get()));
  return submission->device >= 0;
}

// Python adds to the dict what it has submitted itself.
bool Devices::runs(const ModuleState* state, PyObject* tensor, const hvd_submission& submission,
                   int32_t dtype) {
  const bool has_factors = is_factor(submission.prescale) || is_factor(submission.postscale);
  const Terms terms{dtype, submission.reduce_op, submission.device, has_factors};
  if (std::find(known_.begin(), known_.end(), terms) != known_.end()) return true;
  Reference kind(PyLong_FromLong(submission.op)), operation(PyLong_FromLong(submission.reduce_op));
  Reference factor(PyFloat_FromDouble(has_factors ? 0.5 : 1.0));
  Reference device(PyLong_FromLong(submission.device));
  Reference type(PyObject_GetAttr(tensor, state->name_of_dtype));
  if (!kind || !operation || !factor || !device || !type) return false;
  Reference key(
      PyTuple_Pack(5, kind.get(), type.get(), operation.get(), factor.get(), device.get()));
  if (!key || PyDict_GetItemWithError(runs_.get(), key.get()) != Py_True) return false;
  known_.push_back(terms);
  return true;
}

// PyTorch raises the last error of a thread after its next kernel.
bool Devices::succeeds(int error) {
  if (error != 0) calls_.get_last_error();
  return error == 0;
}

// The default stream of every device is 0, which the runtime takes for that of the current device: the tensor's
// device must be the current one.
bool Devices::find_stream(hvd_submission* submission) {
  int current = HVD_CPU, is_capturing = 0;
  if (!succeeds(calls_.get_device(&current)) || current != submission->device) return false;
  if (device_ == HVD_CPU) device_ = current;
  Reference device(PyLong_FromLong(current));
  if (!device || device_ != current) return false;
  Reference stream(PyObject_CallFunctionObjArgs(current_stream_.get(), device.get(), nullptr));
  if (!stream) return false;
  submission->stream = PyLong_AsVoidPtr(stream.get());
  return PyErr_Occurred() == nullptr &&
         succeeds(calls_.stream_is_capturing(submission->stream, &is_capturing)) &&
         is_capturing == 0;
}

// Returns an event after the stream's work, or NULL.
void* Devices::record(void* stream) {
  void* event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  } else if (!succeeds(calls_.event_create(&event, kDisableTiming))) {
    return nullptr;
  }
  if (succeeds(calls_.event_record(event, stream))) return event;
  succeeds(calls_.event_destroy(event));
  return nullptr;
}

bool Devices::submit(ModuleState* state, const Framework& framework, PyObject* tensor,
                     hvd_submission submission, Reference* handle) {
  DenseTensor dense;
  if (state->is_provisional() != 0 || !read(state, framework, tensor, &dense) ||
      !find_device(state, tensor, &submission) ||
      !runs(state, tensor, submission, dense.view.dtype) || !find_stream(&submission)) {
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
  unsigned long long create = 0, destroy = 0, record = 0, is_capturing = 0, device = 0, error = 0;
  PyObject *type = nullptr, *current_stream = nullptr, *runs = nullptr;
  if (!PyArg_ParseTuple(arguments, "KKKKKKOOO!", &create, &destroy, &record, &is_capturing, &device,
                        &error, &type, &current_stream, &PyDict_Type, &runs)) {
    return nullptr;
  }
  Devices::Calls calls{};
  take_address(&calls.event_create, create);
  take_address(&calls.event_destroy, destroy);
  take_address(&calls.event_record, record);
  take_address(&calls.stream_is_capturing, is_capturing);
  take_address(&calls.get_device, device);
  take_address(&calls.get_last_error, error);
  ModuleState* state = state_of(module);
  if (state->devices == nullptr) {
    for (PyObject* kept : {type, current_stream, runs}) Py_INCREF(kept);
    state->devices =
        new Devices(calls, Reference(type), Reference(current_stream), Reference(runs));
  }
  Py_RETURN_NONE;
}

}  // namespace hvd::python
