#include "dense.h"

#include "reference.h"

namespace hvd::python {
namespace {

// The data behind __array_struct__, as numpy's array interface defines it (version 3).
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
    case 'b':
      return size == 1 ? HVD_BOOL : -1;
    case 'f':
      return size == 4 ? HVD_FLOAT32 : size == 8 ? HVD_FLOAT64 : size == 2 ? HVD_FLOAT16 : -1;
    case 'i':
      return size == 4   ? HVD_INT32
             : size == 8 ? HVD_INT64
             : size == 2 ? HVD_INT16
             : size == 1 ? HVD_INT8
                         : -1;
    case 'u':
      return size == 4   ? HVD_UINT32
             : size == 8 ? HVD_UINT64
             : size == 2 ? HVD_UINT16
             : size == 1 ? HVD_UINT8
                         : -1;
    default:
      return -1;
  }
}

bool read_array(const ModuleState* state, PyObject* array, DenseTensor* out) {
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

// The parts of DLPack's exchange functions (dlpack.h, version 1) that this file uses.
struct DlpackTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: row-major
  uint64_t byte_offset;
};
struct ExchangeTable {
  uint32_t major, minor;
  const ExchangeTable* older;
  void (*unused[3])();
  int (*describe)(void* object, DlpackTensor* out);  // 0, or -1 with an exception set
};

namespace {

constexpr int32_t kDlpackHost = 1;

int dtype_of_dlpack(const DlpackTensor& tensor) {
  if (tensor.lanes != 1) return -1;
  switch (tensor.code) {
    case 0:
      return dtype_of('i', tensor.bits / 8);
    case 1:
      return dtype_of('u', tensor.bits / 8);
    case 2:
      return dtype_of('f', tensor.bits / 8);
    case 4:
      return tensor.bits == 16 ? HVD_BFLOAT16 : -1;
    case 6:
      return tensor.bits == 8 ? HVD_BOOL : -1;
    default:
      return -1;
  }
}

bool read_exchanged(PyObject* tensor, const ExchangeTable& table, DenseTensor* out) {
  DlpackTensor found{};
  if (table.describe(tensor, &found) != 0 || found.device_type != kDlpackHost ||
      found.ndim > kMaxDimensions) {
    return false;
  }
  int64_t row = 1;
  bool is_dense = true, is_empty = false;
  for (int32_t i = found.ndim - 1; i >= 0; --i) {
    out->shape[i] = found.shape[i];
    is_empty = is_empty || found.shape[i] == 0;
    if (found.strides != nullptr && found.shape[i] != 1) {
      is_dense = is_dense && found.strides[i] == row;
    }
    row *= found.shape[i];
  }
  out->view.dtype = dtype_of_dlpack(found);
  out->view.ndim = found.ndim;
  out->view.shape = out->shape;
  out->view.output = static_cast<char*>(found.data) + found.byte_offset;
  out->view.input = out->view.output;
  return out->view.dtype >= 0 && (is_dense || is_empty);
}

}  // namespace

bool read_framework(PyObject* described, Framework* out) {
  PyObject* exchange = Py_None;
  if (!PyArg_ParseTuple(described, "OO!O|O", &out->type, &PyDict_Type, &out->dtypes, &out->layout,
                        &exchange)) {
    return false;
  }
  out->exchange = nullptr;
  if (exchange == Py_None) return true;
  const auto* table =
      static_cast<const ExchangeTable*>(PyCapsule_GetPointer(exchange, "dlpack_exchange_api"));
  if (table == nullptr) return false;
  if (table->major == 1 && table->describe != nullptr) out->exchange = table;
  return true;
}

bool read_address(const ModuleState* state, PyObject* tensor, void** out) {
  Reference address(PyObject_CallMethodObjArgs(tensor, state->name_of_data_ptr, nullptr));
  if (!address) return false;
  *out = PyLong_AsVoidPtr(address.get());
  return *out != nullptr || PyErr_Occurred() == nullptr;
}

namespace {

// Returns whether the values of the tensor are the negated values of its memory, as for the imaginary part of a
// conjugated tensor. Such a view has every second element of its memory, so it is dense only with a single element.
bool is_negated(PyObject* tensor, const DenseTensor& found) {
  for (int32_t i = 0; i < found.view.ndim; ++i) {
    if (found.shape[i] != 1) return false;
  }
  const Reference negated(PyObject_CallMethod(tensor, "is_neg", nullptr));
  return negated.get() != Py_False;
}

bool read_attributes(const ModuleState* state, PyObject* tensor, const Framework& framework,
                     PyObject* place, DenseTensor* out) {
  Reference layout(PyObject_GetAttr(tensor, state->name_of_layout));
  if (layout.get() != framework.layout) return false;
  Reference is_there(PyObject_GetAttr(tensor, place));
  if (is_there.get() != Py_True) return false;
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

}  // namespace

bool read_by_attributes(const ModuleState* state, PyObject* tensor, const Framework& framework,
                        PyObject* place, DenseTensor* out) {
  return read_attributes(state, tensor, framework, place, out) && !is_negated(tensor, *out);
}

bool read_dense(const ModuleState* state, PyObject* tensor, const Framework& framework,
                DenseTensor* out) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != framework.type) return false;
  if (framework.layout == Py_None) return read_array(state, tensor, out);
  if (framework.exchange == nullptr) {
    return read_by_attributes(state, tensor, framework, state->name_of_is_cpu, out);
  }
  return read_exchanged(tensor, *framework.exchange, out) && !is_negated(tensor, *out);
}

}  // namespace hvd::python
