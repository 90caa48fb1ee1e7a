// Processes gradients from backward to the optimizer's step in one call: between two training steps, the CPU caches
// lose this code, so each line of Python would cost a microsecond.
#include "gradient_bucket.h"
#include "reference.h"

namespace hvd::python {

namespace {

// Submits the gathered gradients with `terms` (name, op, prescale, postscale, process set). Returns the
// handle.
PyObject* submit_gathered(ModuleState* state, GradientBucket* bucket, PyObject* terms,
                          PyObject* keep) {
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.device = HVD_CPU;
  if (!PyArg_ParseTuple(terms, "siddi", &submission.name, &submission.reduce_op,
                        &submission.prescale, &submission.postscale, &submission.process_set)) {
    return nullptr;
  }
  bucket->tensors.clear();
  const auto add = [bucket](void* data, const int64_t* count) {
    hvd_tensor tensor{};
    tensor.dtype = bucket->dtype;
    tensor.ndim = 1;
    tensor.shape = count;
    tensor.input = tensor.output = data;
    bucket->tensors.push_back(tensor);
  };
  if (bucket->packed > 0) add(bucket->memory, &bucket->packed);
  for (const BucketSlot& slot : bucket->slots) {
    if (slot.apart) add(slot.data(), &slot.count);
  }
  submission.tensor_count = static_cast<uint32_t>(bucket->tensors.size());
  submission.tensors = bucket->tensors.data();
  return hand_over(state, submission, keep);
}

// Handles a wait that raised an exception. After an interrupt the work continues, so the function adds its handle to
// `keep`. Always returns NULL.
PyObject* keep_pending(ModuleState* state, PyObject* handle, PyObject* keep) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  if (PyDict_GetItemWithError(state->pending, handle) != nullptr) PyList_Append(keep, handle);
  PyErr_Restore(type, value, trace);
  return nullptr;
}

}  // namespace

PyObject* bucket_gather(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *described = nullptr;
  BucketLists lists;
  if (!PyArg_ParseTuple(arguments, "OO", &capsule, &described) || !lists.read(described)) {
    return nullptr;
  }
  GradientBucket* bucket = bucket_of(capsule);
  return bucket == nullptr ? nullptr : gather(state_of(module), bucket, lists);
}

PyObject* bucket_submit(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *terms = nullptr, *keep = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO!O!", &capsule, &PyTuple_Type, &terms, &PyList_Type, &keep)) {
    return nullptr;
  }
  GradientBucket* bucket = bucket_of(capsule);
  return bucket == nullptr ? nullptr : submit_gathered(state_of(module), bucket, terms, keep);
}

PyObject* bucket_scatter(PyObject*, PyObject* capsule) {
  const GradientBucket* bucket = bucket_of(capsule);
  if (bucket == nullptr) return nullptr;
  scatter(*bucket);
  Py_RETURN_NONE;
}

PyObject* bucket_place(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  unsigned int index = 0;
  unsigned long long address = 0;
  if (!PyArg_ParseTuple(arguments, "OIK", &capsule, &index, &address)) return nullptr;
  GradientBucket* bucket = bucket_of(capsule);
  if (bucket == nullptr) return nullptr;
  if (index >= bucket->slots.size()) {
    PyErr_SetString(PyExc_IndexError, "the bucket has fewer slots");
    return nullptr;
  }
  bucket->slots[index].place = reinterpret_cast<char*>(static_cast<uintptr_t>(address));
  Py_RETURN_NONE;
}

PyObject* bucket_run(PyObject* module, PyObject* arguments) {
  PyObject *capsule = nullptr, *described = nullptr, *terms = nullptr;
  BucketLists lists;
  if (!PyArg_ParseTuple(arguments, "OOO!", &capsule, &described, &PyTuple_Type, &terms) ||
      !lists.read(described)) {
    return nullptr;
  }
  ModuleState* state = state_of(module);
  GradientBucket* bucket = bucket_of(capsule);
  Reference gathered(bucket == nullptr ? nullptr : gather(state, bucket, lists));
  if (!gathered || !PyBool_Check(gathered.get())) return gathered.give();
  Reference handle(submit_gathered(state, bucket, terms, lists.keep));
  if (!handle) return nullptr;
  Reference waited(wait(module, handle.get()));
  if (!waited) return keep_pending(state, handle.get(), lists.keep);
  scatter(*bucket);
  return gathered.give();
}

}  // namespace hvd::python
