// Collectives of groups: converts Python's arguments, and calls hvd_group_submit.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "dense.h"
#include "reference.h"
#include "state.h"
#include "without_lock.h"

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

}  // namespace

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

}  // namespace hvd::python
