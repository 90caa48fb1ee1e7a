// Converts Python's arguments, and calls hvd_submit.
// Collectives of groups: converts Python's arguments, and calls hvd_group_submit.
// Begins work whose inputs a device stream copies, once the stream has completed the copies.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dense.h"
#include "device.h"
#include "reference.h"
#include "state.h"

namespace hvd::python {
namespace {

constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{1000};

// Returns false with an exception if the call is refused. While pending work uses the call's memory, waits for at most
// `seconds`: that work may have ended on some ranks only, but all ranks must count the call.
bool call_group(ModuleState* state, const hvd_group_call& call, double seconds,
                hvd_handle* handle) {
  if (PyList_Size(state->abandoned) > 0 && !sweep(state)) return false;
  char error[kErrorSize];
  int status = state->group_submit(&call, handle, error, sizeof error);
  if (status == HVD_OK) return true;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (auto pause = kFirstPause;
       status == HVD_ALREADY_EXISTS && (seconds < 0 || std::chrono::steady_clock::now() < until);
       pause = std::min(2 * pause, kLongestPause)) {
    status = without_lock([&] {
      std::this_thread::sleep_for(pause);
      return state->group_submit(&call, handle, error, sizeof error);
    });
    if (status != HVD_OK && PyErr_CheckSignals() != 0) return false;
  }
  if (status == HVD_OK) return true;
  raise_failure(state, status, error, false);
  return false;
}

bool read_counts(PyObject* sequence, std::vector<int64_t>* out) {
  const Py_ssize_t count = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Reference item(PySequence_GetItem(sequence, i));
    if (!item) return false;
    out->push_back(PyLong_AsLongLong(item.get()));
    if (PyErr_Occurred() != nullptr) return false;
  }
  return count >= 0;
}

// cudaLaunchHostFunc, or hipLaunchHostFunc.
using LaunchHostFunction = int(void* stream, void (*function)(void*), void* argument);

// hvd_start of the library. A global variable, because host functions do not get the module.
std::atomic<decltype(&::hvd_start)> start_function{nullptr};

// Called by a thread of the driver. The argument is a handle and not a pointer, because the work may have ended
// meanwhile.
void on_reached(void* handle) {
  start_function.load()(static_cast<hvd_handle>(reinterpret_cast<uintptr_t>(handle)), nullptr, 0);
}

}  // namespace

PyObject* keep_pending(ModuleState* state, hvd_handle number, PyObject* entry) {
  Reference handle(PyLong_FromUnsignedLongLong(number));
  if (!handle || PyDict_SetItem(state->pending, handle.get(), entry) != 0) return nullptr;
  return handle.give();
}

PyObject* hand_over(ModuleState* state, hvd_submission submission, PyObject* entry) {
  submission.flags |= HVD_KEEPS_TENSORS;
  if (PyList_Size(state->abandoned) > 0 && !sweep(state)) return nullptr;
  if (state->devices != nullptr) {
    state->devices->sweep(state);
    const std::string late = state->devices->late_error();
    if (!late.empty()) return raise_failure(state, HVD_ABORTED, late.c_str(), true);
  }
  char error[kErrorSize];
  hvd_handle number = 0;
  int status = HVD_OK;
  if (state->is_provisional() != 0) {
    // In this state, the call waits for other ranks.
    status = without_lock([&] { return state->submit(&submission, &number, error, sizeof error); });
  } else {
    status = state->submit(&submission, &number, error, sizeof error);
  }
  if (status != HVD_OK) return raise_failure(state, status, error, false);
  return keep_pending(state, number, entry);
}

namespace {

// The arrays that a submission points to; they live until hvd_submit has read them.
struct Parts {
  std::vector<hvd_tensor> tensors;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::string> names;
  std::vector<int64_t> splits;
};

bool read_text(PyObject* text, std::string* out) {
  Reference bytes(PyUnicode_AsUTF8String(text));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!bytes || PyBytes_AsStringAndSize(bytes.get(), &data, &size) != 0) return false;
  out->assign(data, static_cast<size_t>(size));
  return true;
}

bool read_numbers(PyObject* sequence, std::vector<int64_t>* out) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return false;
  out->resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Reference item(PySequence_GetItem(sequence, i));
    if (!item) return false;
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(item.get(), &overflow);
    if (value == -1 && PyErr_Occurred() != nullptr) return false;
    // The library refuses a number outside its range, and its error names the number.
    (*out)[static_cast<size_t>(i)] = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
  }
  return true;
}

bool read_tensor(PyObject* described, size_t index, Parts* parts) {
  unsigned long long input = 0, output = 0;
  int dtype = 0;
  PyObject *shape = nullptr, *name = nullptr;
  if (!PyArg_ParseTuple(described, "KKiOO", &input, &output, &dtype, &shape, &name)) return false;
  if (!read_numbers(shape, &parts->shapes[index])) return false;
  if (name != Py_None && !read_text(name, &parts->names[index])) return false;
  hvd_tensor& tensor = parts->tensors[index];
  tensor.name = name == Py_None ? nullptr : parts->names[index].c_str();
  tensor.dtype = dtype;
  tensor.ndim = static_cast<int32_t>(parts->shapes[index].size());
  tensor.shape = parts->shapes[index].data();
  tensor.input = reinterpret_cast<const void*>(static_cast<uintptr_t>(input));
  tensor.output = reinterpret_cast<void*>(static_cast<uintptr_t>(output));
  return true;
}

bool read_tensors(PyObject* sequence, Parts* parts) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return false;
  parts->tensors.resize(static_cast<size_t>(count));
  parts->shapes.resize(static_cast<size_t>(count));
  parts->names.resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Reference described(PySequence_GetItem(sequence, i));
    if (!described || !read_tensor(described.get(), static_cast<size_t>(i), parts)) return false;
  }
  return true;
}

}  // namespace

PyObject* submit(PyObject* module, PyObject* arguments) {
  ModuleState* state = state_of(module);
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.device = HVD_CPU;
  unsigned long long stream = 0, event = 0;
  PyObject *tensors = nullptr, *keep = nullptr, *finish = nullptr, *splits = nullptr;
  PyObject* check = Py_None;
  if (!PyArg_ParseTuple(arguments, "izOOOiiiddO|iKKOi", &submission.op, &submission.name, &tensors,
                        &keep, &finish, &submission.reduce_op, &submission.root_rank,
                        &submission.process_set, &submission.prescale, &submission.postscale,
                        &splits, &submission.device, &stream, &event, &check, &submission.flags)) {
    return nullptr;
  }
  submission.stream = reinterpret_cast<void*>(static_cast<uintptr_t>(stream));
  submission.ready_event = reinterpret_cast<void*>(static_cast<uintptr_t>(event));
  Parts parts;
  if (!read_tensors(tensors, &parts) || !read_numbers(splits, &parts.splits)) return nullptr;
  submission.tensor_count = static_cast<uint32_t>(parts.tensors.size());
  submission.tensors = parts.tensors.data();
  submission.split_count = static_cast<uint32_t>(parts.splits.size());
  submission.wide_splits = parts.splits.data();
  if (check != Py_None) submission.flags |= HVD_AWAITS_START;
  Reference entry(check == Py_None ? PyTuple_Pack(2, finish, keep)
                                   : PyTuple_Pack(3, finish, keep, check));
  if (!entry) return nullptr;
  if ((submission.flags & HVD_STREAM_ORDERED) == 0)
    return hand_over(state, submission, entry.get());
  Devices::Event ready = state->devices->order(&submission);
  if (ready == nullptr) {
    PyErr_Format(PyExc_RuntimeError, "GPU %d has failed: it records no event", submission.device);
    return nullptr;
  }
  Reference handle(hand_over(state, submission, entry.get()));
  if (handle) {
    state->devices->uses(PyLong_AsUnsignedLongLong(handle.get()), std::move(ready), true);
  }
  return handle.give();
}

PyObject* group_submit(PyObject* module, PyObject* arguments) {
  ModuleState* state = state_of(module);
  hvd_group_call call{};
  call.struct_size = sizeof call;
  unsigned long long input = 0, output = 0;
  long long count = 0;
  double seconds = 0;
  PyObject *counts = nullptr, *keep = nullptr, *finish = nullptr;
  if (!PyArg_ParseTuple(arguments, "iiiiLKKiidOOOid", &call.group, &call.op, &call.reduce_op,
                        &call.dtype, &count, &input, &output, &call.root_rank, &call.tag,
                        &call.prescale, &counts, &keep, &finish, &call.begins_step, &seconds)) {
    return nullptr;
  }
  call.count = count;
  call.input = reinterpret_cast<const void*>(static_cast<uintptr_t>(input));
  call.output = reinterpret_cast<void*>(static_cast<uintptr_t>(output));
  std::vector<int64_t> numbers;
  if (counts != Py_None) {
    if (!read_counts(counts, &numbers)) return nullptr;
    call.send_counts = numbers.data();
    call.recv_counts = numbers.data() + numbers.size() / 2;
  }
  const Reference entry(PyTuple_Pack(2, finish, keep));
  hvd_handle handle = 0;
  if (!entry || !call_group(state, call, seconds, &handle)) return nullptr;
  return keep_pending(state, handle, entry.get());
}

PyObject* group_reduce(PyObject* module, PyObject* arguments) {
  ModuleState* state = state_of(module);
  hvd_group_call call{};
  call.struct_size = sizeof call;
  call.op = HVD_ALLREDUCE;
  PyObject *described = nullptr, *tensor = nullptr;
  double seconds = 0;
  Framework framework{};
  if (!PyArg_ParseTuple(arguments, "iiO!Od", &call.group, &call.reduce_op, &PyTuple_Type,
                        &described, &tensor, &seconds) ||
      !read_framework(described, &framework)) {
    return nullptr;
  }
  DenseTensor dense;
  if (!read_dense(state, tensor, framework, &dense)) {
    PyErr_Clear();
    Py_RETURN_FALSE;
  }
  call.dtype = dense.view.dtype;
  call.count = 1;
  for (int32_t i = 0; i < dense.view.ndim; ++i) call.count *= dense.shape[i];
  call.input = dense.view.input;
  call.output = dense.view.output;
  hvd_handle handle = 0;
  if (!call_group(state, call, seconds, &handle)) return nullptr;
  char error[kErrorSize];
  const int status = wait_for_end(state, handle, nullptr, seconds, error);
  if (status == HVD_IN_PROGRESS) return keep_pending(state, handle, tensor);
  if (status == -1) {  // interrupted: the runtime still uses the tensor
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    const Reference number(keep_pending(state, handle, tensor));
    if (number) Reference(abandon(module, number.get()));
    PyErr_Restore(type, value, trace);
    return nullptr;
  }
  state->release(handle, nullptr, 0);
  if (status != HVD_OK) return raise_failure(state, status, error, true);
  Py_RETURN_NONE;
}

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
