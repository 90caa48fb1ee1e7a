#include "dense.h"

#include "reference.h"

namespace hvd::python {
namespace {

// What __array_struct__ leads to, as numpy's array interface defines it (version 3).
struct ArrayInterface {
  int two;
  int ndim;
  char kind;
  int item_size;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* description;
};
constexpr int kContiguous = 0x1, kAligned = 0x100, kNotSwapped = 0x200, kWritable = 0x400;
constexpr int kUsable = kContiguous | kAligned | kNotSwapped | kWritable;

int dtype_of(char kind, int size) {
  switch (kind) {
    case 'b': return size == 1 ? HVD_BOOL : -1;
    case 'f': return size == 4 ? HVD_FLOAT32 : size == 8 ? HVD_FLOAT64 : size == 2 ? HVD_FLOAT16 : -1;
    case 'i': return size == 4 ? HVD_INT32 : size == 8 ? HVD_INT64 : size == 2 ? HVD_INT16
                   : size == 1 ? HVD_INT8 : -1;
    case 'u': return size == 4 ? HVD_UINT32 : size == 8 ? HVD_UINT64 : size == 2 ? HVD_UINT16
                   : size == 1 ? HVD_UINT8 : -1;
    default: return -1;
  }
}

bool read_array(const State* state, PyObject* array, DenseTensor* out) {
  Reference capsule(PyObject_GetAttr(array, state->name_of_array_struct));
  if (!capsule) return false;
  const auto* found =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.get(), nullptr));
  if (found == nullptr || found->two != 2 || (found->flags & kUsable) != kUsable ||
      found->ndim > kMaxDimensions) {
    return false;
  }
  out->view.dtype = dtype_of(found->kind, found->item_size);
  out->view.ndim = found->ndim;
  for (int i = 0; i < found->ndim; ++i) out->shape[i] = found->shape[i];
  out->view.shape = out->shape;
  out->view.input = out->view.output = found->data;
  return out->view.dtype >= 0;
}

}  // namespace

bool read_framework(PyObject* described, Framework* out) {
  return PyArg_ParseTuple(described, "OO!O", &out->type, &PyDict_Type, &out->dtypes,
                          &out->layout) != 0;
}

bool read_address(const State* state, PyObject* tensor, void** out) {
  Reference address(PyObject_CallMethodObjArgs(tensor, state->name_of_data_ptr, nullptr));
  if (!address) return false;
  *out = PyLong_AsVoidPtr(address.get());
  return *out != nullptr || PyErr_Occurred() == nullptr;
}

bool read_dense(const State* state, PyObject* tensor, const Framework& framework,
                DenseTensor* out) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != framework.type) return false;
  if (framework.layout == Py_None) return read_array(state, tensor, out);
  Reference layout(PyObject_GetAttr(tensor, state->name_of_layout));
  if (layout.get() != framework.layout) return false;
  Reference on_host(PyObject_GetAttr(tensor, state->name_of_is_cpu));
  if (on_host.get() != Py_True) return false;
  Reference dense(PyObject_CallMethodObjArgs(tensor, state->name_of_is_contiguous, nullptr));
  if (dense.get() != Py_True) return false;
  Reference dtype(PyObject_GetAttr(tensor, state->name_of_dtype));
  PyObject* number = dtype ? PyDict_GetItemWithError(framework.dtypes, dtype.get()) : nullptr;
  Reference shape(PyObject_GetAttr(tensor, state->name_of_shape));
  if (number == nullptr || !shape) return false;
  const Py_ssize_t dimensions = PyTuple_Size(shape.get());
  if (dimensions < 0 || dimensions > kMaxDimensions) return false;
  for (Py_ssize_t i = 0; i < dimensions; ++i) {
    out->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape.get(), i));
  }
  out->view.dtype = static_cast<int32_t>(PyLong_AsLong(number));
  out->view.ndim = static_cast<int32_t>(dimensions);
  out->view.shape = out->shape;
  if (!read_address(state, tensor, &out->view.output)) return false;
  out->view.input = out->view.output;
  return PyErr_Occurred() == nullptr;
}

}  // namespace hvd::python
