// Reads a framework's tensors in the native module through their Python attributes, __array_struct__ or DLPack.
// Callers hold Python's lock (the GIL).
#pragma once

#include <Python.h>

#include "state.h"

namespace hvd::python {

constexpr int kMaxDimensions = 8;

struct ExchangeTable;  // DLPack's functions of a framework

// How to recognise a dense tensor of a framework: a tuple (type, dict of dtypes to numbers, layout). A layout of None
// means an array that describes itself by __array_struct__. A fourth element is None, or the type's
// __dlpack_c_exchange_api__, which describes a tensor in one call.
struct Framework {
  PyObject* type;
  PyObject* dtypes;
  PyObject* layout;
  const ExchangeTable* exchange;
};

// Returns false with an exception unless `described` is such a tuple. The references are borrowed.
bool read_framework(PyObject* described, Framework* out);

struct DenseTensor {
  hvd_tensor view{};  // input and output are the tensor's memory
  int64_t shape[kMaxDimensions];
};

// Returns whether `tensor` is dense and in host memory; if not, an exception may be set. The view points into *out.
bool read_dense(const ModuleState* state, PyObject* tensor, const Framework& framework,
                DenseTensor* out);

// Reads a tensor of any type through its attributes. The attribute `place`, such as is_cpu, must be
// true.
bool read_by_attributes(const ModuleState* state, PyObject* tensor, const Framework& framework,
                        PyObject* place, DenseTensor* out);

// Stores the address of a tensor's data in *out. Returns false with an exception if the tensor has none.
bool read_address(const ModuleState* state, PyObject* tensor, void** out);

}  // namespace hvd::python
