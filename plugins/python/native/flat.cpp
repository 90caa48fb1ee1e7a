// Many gradients in one piece of memory: they go in, one request reduces it, they come out again.
// The caller keeps whatever Python objects live longer than a call; only numbers are kept here.
#include <cstring>
#include <vector>

#include "dense.h"
#include "reference.h"

namespace hvd::python {

namespace {

constexpr const char* kCapsule = "horovod._native.flat";

struct Slot {
  size_t offset = 0;
  int64_t count = 0;             // elements
  void* outside = nullptr;       // where the gradient lies, unless in its slot
  const void* object = nullptr;  // the gradient of the last step, for its identity alone
};

struct Flat {
  char* memory = nullptr;
  int32_t dtype = 0;
  size_t element = 0;
  std::vector<Slot> slots;

  size_t bytes(const Slot& slot) const { return static_cast<size_t>(slot.count) * element; }
};

Flat* flat_of(PyObject* capsule) {
  return static_cast<Flat*>(PyCapsule_GetPointer(capsule, kCapsule));
}

void destroy(PyObject* capsule) { delete flat_of(capsule); }

bool check_lengths(const Flat& flat, PyObject* params, PyObject* residents, PyObject* held) {
  const auto size = static_cast<Py_ssize_t>(flat.slots.size());
  if (PyList_Size(params) == size && PyList_Size(residents) == size && PyList_Size(held) == size) {
    return true;
  }
  if (PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_ValueError, "the lists are not as long as the flat memory has slots");
  }
  return false;
}

// Whether `grad` goes into the slot as it is; *lies_at is where it lies.
bool fits(const State* state, const Flat& flat, const Slot& slot, PyObject* grad,
          const Framework& framework, void** lies_at) {
  DenseTensor dense;
  if (!read_dense(state, grad, framework, &dense)) {
    PyErr_Clear();
    return false;
  }
  int64_t count = 1;
  for (int32_t i = 0; i < dense.view.ndim; ++i) count *= dense.shape[i];
  *lies_at = dense.view.output;
  return dense.view.dtype == flat.dtype && count == slot.count;
}

// The gradients now; false with an exception set, or where one that lived in its slot has gone:
// the slot is not ours to write, since whoever took the gradient may still read it.
bool read_grads(const State* state, const Flat& flat, PyObject* params, PyObject* residents,
                PyObject* held) {
  bool all_stayed = true;
  for (size_t i = 0; i < flat.slots.size(); ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* grad = PyObject_GetAttr(PyList_GetItem(params, at), state->name_of_grad);
    if (grad == nullptr) return false;
    PyObject* resident = PyList_GetItem(residents, at);
    void* lies_at = nullptr;
    PyList_SetItem(held, at, grad);
    if (resident == Py_None) continue;
    if (resident == grad && !read_address(state, grad, &lies_at)) return false;
    all_stayed = all_stayed && lies_at == flat.memory + flat.slots[i].offset;
  }
  return all_stayed;
}

}  // namespace

PyObject* flat_new(PyObject*, PyObject* arguments) {
  unsigned long long memory = 0;
  int dtype = 0;
  unsigned int element = 0;
  PyObject* slots = nullptr;
  if (!PyArg_ParseTuple(arguments, "KiIO!", &memory, &dtype, &element, &PyList_Type, &slots)) {
    return nullptr;
  }
  auto* flat = new Flat;
  flat->memory = reinterpret_cast<char*>(static_cast<uintptr_t>(memory));
  flat->dtype = dtype;
  flat->element = element;
  flat->slots.resize(static_cast<size_t>(PyList_Size(slots)));
  for (size_t i = 0; i < flat->slots.size(); ++i) {
    unsigned long long offset = 0;
    long long count = 0;
    if (!PyArg_ParseTuple(PyList_GetItem(slots, static_cast<Py_ssize_t>(i)), "KL", &offset,
                          &count)) {
      delete flat;
      return nullptr;
    }
    flat->slots[i].offset = offset;
    flat->slots[i].count = count;
  }
  PyObject* capsule = PyCapsule_New(flat, kCapsule, destroy);
  if (capsule == nullptr) delete flat;
  return capsule;
}

PyObject* flat_gather(PyObject* module, PyObject* arguments) {
  State* state = state_of(module);
  PyObject *capsule = nullptr, *params = nullptr, *residents = nullptr, *held = nullptr,
           *described = nullptr;
  Framework framework{};
  if (!PyArg_ParseTuple(arguments, "OO!O!O!O!", &capsule, &PyList_Type, &params, &PyList_Type,
                        &residents, &PyList_Type, &held, &PyTuple_Type, &described) ||
      !read_framework(described, &framework)) {
    return nullptr;
  }
  Flat* flat = flat_of(capsule);
  if (flat == nullptr || !check_lengths(*flat, params, residents, held)) return nullptr;
  if (!read_grads(state, *flat, params, residents, held)) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    return PyLong_FromLong(-1);
  }
  Reference others(PyList_New(0));
  if (!others) return nullptr;
  bool same = true;
  for (size_t i = 0; i < flat->slots.size(); ++i) {
    Slot& slot = flat->slots[i];
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* grad = PyList_GetItem(held, at);
    void* was_at = slot.outside;
    slot.outside = nullptr;
    if (grad == PyList_GetItem(residents, at) && grad != Py_None) continue;
    void* lies_at = nullptr;
    if (!fits(state, *flat, slot, grad, framework, &lies_at)) {
      std::memset(flat->memory + slot.offset, 0, flat->bytes(slot));
      slot.object = nullptr;
      same = false;
      Reference index(PyLong_FromSsize_t(at));
      if (!index || PyList_Append(others.get(), index.get()) != 0) return nullptr;
      continue;
    }
    std::memcpy(flat->memory + slot.offset, lies_at, flat->bytes(slot));
    same = same && slot.object == grad && was_at == lies_at;
    slot.outside = lies_at;
    slot.object = grad;
  }
  if (PyList_Size(others.get()) > 0) return others.give();
  return PyBool_FromLong(same);
}

PyObject* flat_scatter(PyObject*, PyObject* capsule) {
  const Flat* flat = flat_of(capsule);
  if (flat == nullptr) return nullptr;
  for (const Slot& slot : flat->slots) {
    if (slot.outside != nullptr) {
      std::memcpy(slot.outside, flat->memory + slot.offset, flat->bytes(slot));
    }
  }
  Py_RETURN_NONE;
}

}  // namespace hvd::python
