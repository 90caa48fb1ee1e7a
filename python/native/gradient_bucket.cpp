// The gradients of many parameters as one request. Small gradients are copied into one piece of memory and back. A
// large gradient is a separate tensor of the request, reduced in place. The caller keeps the Python objects alive
// between calls; the bucket keeps only numbers. One call processes the gradients of a step, since each line of Python
// would cost a microsecond: between two training steps, the CPU caches lose the code.
#include <cstring>
#include <utility>
#include <vector>

#include "dense.h"
#include "reference.h"

namespace hvd::python {
namespace {

constexpr const char* kCapsule = "horovod._native.gradient_bucket";

struct BucketSlot {
  // The address in the packed memory; for a separate tensor, the memory that replaces a gradient which cannot be
  // reduced in place, or NULL if not needed yet.
  char* place = nullptr;
  int64_t count = 0;             // number of elements
  bool apart = false;            // a separate tensor of the request
  void* outside = nullptr;       // address of the gradient if it is outside of `place`
  const void* object = nullptr;  // the gradient of the last step; used only to compare identities

  void* data() const { return outside != nullptr ? outside : place; }
};

struct GradientBucket {
  char* memory = nullptr;  // holds the packed gradients
  int64_t packed = 0;      // elements in `memory`
  int32_t dtype = 0;
  size_t element = 0;
  std::vector<BucketSlot> slots;
  // Tensors of the request. A member, so that a step allocates no memory for this list.
  std::vector<hvd_tensor> tensors;

  size_t bytes(const BucketSlot& slot) const { return static_cast<size_t>(slot.count) * element; }
};

// The Python lists of a bucket, one entry per slot. Borrowed for the call.
struct BucketLists {
  PyObject* params = nullptr;
  PyObject* residents = nullptr;  // gradients whose memory is their own slot, or None
  PyObject* held = nullptr;       // receives the gradients
  PyObject* keep = nullptr;       // a list of the objects that must stay alive during the reduction
  Framework framework{};

  bool read(PyObject* described_lists) {
    PyObject* described = nullptr;
    return PyArg_ParseTuple(described_lists, "O!O!O!O!O!", &PyList_Type, &params, &PyList_Type,
                            &residents, &PyList_Type, &held, &PyList_Type, &keep, &PyTuple_Type,
                            &described) != 0 &&
           read_framework(described, &framework);
  }
};

// Returns NULL with an exception set if the object is not a bucket.
GradientBucket* bucket_of(PyObject* capsule) {
  return static_cast<GradientBucket*>(PyCapsule_GetPointer(capsule, kCapsule));
}

void destroy(PyObject* capsule) { delete bucket_of(capsule); }

bool check_lengths(const GradientBucket& bucket, const BucketLists& lists) {
  const auto size = static_cast<Py_ssize_t>(bucket.slots.size());
  for (PyObject* list : {lists.params, lists.residents, lists.held}) {
    if (PyList_Size(list) == size) continue;
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_ValueError, "the lists are not as long as the bucket has slots");
    }
    return false;
  }
  return true;
}

// Returns whether `grad` fits into the slot unchanged; sets *lies_at to its address.
bool fits(const ModuleState* state, const GradientBucket& bucket, const BucketSlot& slot,
          PyObject* grad, const Framework& framework, void** lies_at) {
  DenseTensor dense;
  if (!read_dense(state, grad, framework, &dense)) {
    PyErr_Clear();
    return false;
  }
  int64_t count = 1;
  for (int32_t i = 0; i < dense.view.ndim; ++i) count *= dense.shape[i];
  *lies_at = dense.view.output;
  return dense.view.dtype == bucket.dtype && count == slot.count;
}

// Reads the current gradients. Returns false with an exception set, or if the program has replaced a gradient whose
// memory is its slot: code that holds the old gradient may still read the slot.
bool read_grads(const ModuleState* state, const GradientBucket& bucket, const BucketLists& lists) {
  bool all_stayed = true;
  for (size_t i = 0; i < bucket.slots.size(); ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* grad = PyObject_GetAttr(PyList_GetItem(lists.params, at), state->name_of_grad);
    if (grad == nullptr) return false;
    PyObject* resident = PyList_GetItem(lists.residents, at);
    void* lies_at = nullptr;
    PyList_SetItem(lists.held, at, grad);
    if (resident == Py_None) continue;
    if (resident == grad && !read_address(state, grad, &lies_at)) return false;
    all_stayed = all_stayed && lies_at == bucket.slots[i].place;
  }
  return all_stayed;
}

enum class GradientPlace { kSame, kOther, kNone };

// Copies one gradient to its place in the request, or makes the request point to it.
GradientPlace gather_one(const ModuleState* state, const GradientBucket& bucket,
                         const BucketLists& lists, size_t index, BucketSlot& slot) {
  const auto at = static_cast<Py_ssize_t>(index);
  PyObject* grad = PyList_GetItem(lists.held, at);
  void* was_at = std::exchange(slot.outside, nullptr);
  if (grad == PyList_GetItem(lists.residents, at) && grad != Py_None) return GradientPlace::kSame;
  void* lies_at = nullptr;
  if (!fits(state, bucket, slot, grad, lists.framework, &lies_at)) {
    if (slot.place != nullptr) std::memset(slot.place, 0, bucket.bytes(slot));
    slot.object = nullptr;
    return GradientPlace::kNone;
  }
  if (!slot.apart) std::memcpy(slot.place, lies_at, bucket.bytes(slot));
  slot.outside = lies_at;
  return std::exchange(slot.object, grad) == grad && was_at == lies_at ? GradientPlace::kSame
                                                                       : GradientPlace::kOther;
}

// Gathers as bucket_gather (module.cpp) does, and returns its result.
PyObject* gather(ModuleState* state, GradientBucket* bucket, const BucketLists& lists) {
  if (!check_lengths(*bucket, lists)) return nullptr;
  if (!read_grads(state, *bucket, lists)) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    return PyLong_FromLong(-1);
  }
  Reference others(PyList_New(0));
  if (!others) return nullptr;
  bool same = true;
  for (size_t i = 0; i < bucket->slots.size(); ++i) {
    const GradientPlace found = gather_one(state, *bucket, lists, i, bucket->slots[i]);
    same = same && found == GradientPlace::kSame;
    if (found != GradientPlace::kNone) continue;
    Reference index(PyLong_FromSize_t(i));
    if (!index || PyList_Append(others.get(), index.get()) != 0) return nullptr;
  }
  if (PyList_Size(others.get()) > 0) return others.give();
  return PyBool_FromLong(same);
}

void scatter(const GradientBucket& bucket) {
  for (const BucketSlot& slot : bucket.slots) {
    if (slot.apart || slot.outside == nullptr) continue;
    std::memcpy(slot.outside, slot.place, bucket.bytes(slot));
  }
}

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

PyObject* bucket_new(PyObject*, PyObject* arguments) {
  unsigned long long memory = 0;
  long long packed = 0;
  int dtype = 0;
  unsigned int element = 0;
  PyObject* slots = nullptr;
  if (!PyArg_ParseTuple(arguments, "KLiIO!", &memory, &packed, &dtype, &element, &PyList_Type,
                        &slots)) {
    return nullptr;
  }
  auto* bucket = new GradientBucket;
  Reference capsule(PyCapsule_New(bucket, kCapsule, destroy));
  if (!capsule) {
    delete bucket;
    return nullptr;
  }
  bucket->memory = reinterpret_cast<char*>(static_cast<uintptr_t>(memory));
  bucket->packed = packed;
  bucket->dtype = dtype;
  bucket->element = element;
  bucket->slots.resize(static_cast<size_t>(PyList_Size(slots)));
  for (size_t i = 0; i < bucket->slots.size(); ++i) {
    unsigned long long place = 0;
    long long count = 0;
    if (!PyArg_ParseTuple(PyList_GetItem(slots, static_cast<Py_ssize_t>(i)), "KL", &place,
                          &count)) {
      return nullptr;
    }
    BucketSlot& slot = bucket->slots[i];
    slot.place = reinterpret_cast<char*>(static_cast<uintptr_t>(place));
    slot.count = count;
    slot.apart = place == 0;
  }
  return capsule.give();
}

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
