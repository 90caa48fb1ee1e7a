// Gradients from backward to the optimizer's step in one call: between two steps of training the
// caches hold nothing of what is run here, so that each line of Python would cost a microsecond.
#include "flat.h"
#include "reference.h"

namespace hvd::python {

namespace {

// Submits what was gathered, as (name, op, prescale, postscale, process set) say; gives the handle.
PyObject* submit_gathered(State* state, Flat* flat, PyObject* terms, PyObject* keep) {
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.device = HVD_CPU;
  if (!PyArg_ParseTuple(terms, "siddi", &submission.name, &submission.reduce_op,
                        &submission.prescale, &submission.postscale, &submission.process_set)) {
    return nullptr;
  }
  flat->tensors.clear();
  const auto add = [flat](void* data, const int64_t* count) {
    hvd_tensor tensor{};
    tensor.dtype = flat->dtype;
    tensor.ndim = 1;
    tensor.shape = count;
    tensor.input = tensor.output = data;
    flat->tensors.push_back(tensor);
  };
  if (flat->packed > 0) add(flat->memory, &flat->packed);
  for (const Slot& slot : flat->slots) {
    if (slot.apart) add(slot.data(), &slot.count);
  }
  submission.tensor_count = static_cast<uint32_t>(flat->tensors.size());
  submission.tensors = flat->tensors.data();
  return hand_over(state, submission, keep);
}

// Of a wait that has raised. Interrupted, the work goes on: its handle joins what is kept. Always NULL.
PyObject* keep_pending(State* state, PyObject* handle, PyObject* keep) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  if (PyDict_GetItemWithError(state->pending, handle) != nullptr) PyList_Append(keep, handle);
  PyErr_Restore(type, value, trace);
  return nullptr;
}

}  // namespace

PyObject* flat_gather(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *described = nullptr;
  FlatLists lists;
  if (!PyArg_ParseTuple(arguments, "OO", &capsule, &described) || !lists.read(described)) {
    return nullptr;
  }
  Flat* flat = flat_of(capsule);
  return flat == nullptr ? nullptr : gather(state_of(module), flat, lists);
}

PyObject* flat_submit(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *terms = nullptr, *keep = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO!O!", &capsule, &PyTuple_Type, &terms, &PyList_Type, &keep)) {
    return nullptr;
  }
  Flat* flat = flat_of(capsule);
  return flat == nullptr ? nullptr : submit_gathered(state_of(module), flat, terms, keep);
}

PyObject* flat_scatter(PyObject*, PyObject* capsule) {
  const Flat* flat = flat_of(capsule);
  if (flat == nullptr) return nullptr;
  scatter(*flat);
  Py_RETURN_NONE;
}

PyObject* flat_place(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  unsigned int index = 0;
  unsigned long long address = 0;
  if (!PyArg_ParseTuple(arguments, "OIK", &capsule, &index, &address)) return nullptr;
  Flat* flat = flat_of(capsule);
  if (flat == nullptr) return nullptr;
  if (index >= flat->slots.size()) {
    PyErr_SetString(PyExc_IndexError, "the flat memory has fewer slots");
    return nullptr;
  }
  flat->slots[index].place = reinterpret_cast<char*>(static_cast<uintptr_t>(address));
  Py_RETURN_NONE;
}

PyObject* flat_run(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *described = nullptr, *terms = nullptr;
  FlatLists lists;
  if (!PyArg_ParseTuple(arguments, "OOO!", &capsule, &described, &PyTuple_Type, &terms) ||
      !lists.read(described)) {
    return nullptr;
  }
  State* state = state_of(module);
  Flat* flat = flat_of(capsule);
  Reference gathered(flat == nullptr ? nullptr : gather(state, flat, lists));
  if (!gathered || !PyBool_Check(gathered.get())) return gathered.give();
  Reference handle(submit_gathered(state, flat, terms, lists.keep));
  if (!handle) return nullptr;
  Reference waited(wait(module, handle.get()));
  if (!waited) return keep_pending(state, handle.get(), lists.keep);
  scatter(*flat);
  return gathered.give();
}

}  // namespace hvd::python
