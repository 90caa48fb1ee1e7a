// The fast path of an in-place allreduce: runs the usual call of a training step without Python code. Compares argument
// names by address. The Python function handles all other calls, also those with unsuitable arguments. Errors of a
// submitted operation are raised here.
#include <cstring>
#include <string>

#include "dense.h"
#include "device.h"
#include "reference.h"

namespace hvd::python {

namespace {

// METH_FASTCALL, which is in the limited API since 3.10, and has the same meaning in every CPython since 3.7.
constexpr int kFastCall = 0x0080;

constexpr size_t kMaxName = 256;

enum Argument { kTensor, kAverage, kName, kOp, kPrescale, kPostscale, kProcessSet, kArguments };

// The data of a fast path, owned by the tuple that is the function's `self`.
struct FastPath {
  PyMethodDef definition{};
  std::string name;
  std::string doc;
  std::string prefix;
  ModuleState* state = nullptr;
  PyObject* module = nullptr;     // borrowed, like the members below
  PyObject* function = nullptr;   // handles all other calls
  PyObject* everybody = nullptr;  // the process set that calls need not name
  Framework framework{};
  int default_op = 0;
  bool waits = false;
};

constexpr const char* kFastPathCapsule = "horovod._native.fast_path";

// Sorts the arguments by parameter. Returns false if the Python function must handle the call, for example because the
// address of a name is unknown.
bool place(const ModuleState* state, PyObject* const* given, Py_ssize_t count, PyObject* names,
           PyObject** placed) {
  if (count > kArguments) return false;
  for (Py_ssize_t i = 0; i < count; ++i) placed[i] = given[i];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    int at = 0;
    while (at < kArguments && PyTuple_GetItem(state->names_of_arguments, at) != name) ++at;
    if (at == kArguments || placed[at] != nullptr) return false;
    placed[at] = given[count + i];
  }
  return placed[kTensor] != nullptr;
}

bool read_factor(PyObject* given, double* out) {
  if (given == nullptr) return true;
  if (!PyFloat_Check(given)) return false;
  *out = PyFloat_AsDouble(given);
  return *out != 0;
}

bool read_op(PyObject* given, int default_op, int* out) {
  *out = default_op;
  if (given == nullptr || given == Py_None) return true;
  if (!PyLong_CheckExact(given)) return false;
  *out = static_cast<int>(PyLong_AsLong(given));
  return PyErr_Occurred() == nullptr;
}

// Concatenates prefix and name. Returns false if the result is too long, or `name` is not a text or contains NUL.
bool join_name(const std::string& prefix, PyObject* name, char (&out)[kMaxName]) {
  if (name == nullptr || !PyUnicode_Check(name)) return false;
  Reference bytes(PyUnicode_AsUTF8String(name));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!bytes || PyBytes_AsStringAndSize(bytes.get(), &data, &size) != 0) return false;
  const size_t length = prefix.size() + static_cast<size_t>(size);
  if (length >= kMaxName) return false;
  std::memcpy(out, prefix.data(), prefix.size());
  std::memcpy(out + prefix.size(), data, static_cast<size_t>(size));
  out[length] = '\0';
  return std::strlen(out) == length;
}

// This struct contains pointers to its own members, so it must not move.
struct FastSubmission {
  hvd_submission submission{};
  DenseTensor dense;
  char name[kMaxName];
};

bool read_terms(const FastPath& fast_path, PyObject* const* placed, FastSubmission* out) {
  hvd_submission& submission = out->submission;
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.device = HVD_CPU;
  submission.prescale = submission.postscale = 1;
  if ((placed[kAverage] != nullptr && placed[kAverage] != Py_None) ||
      (placed[kProcessSet] != nullptr && placed[kProcessSet] != fast_path.everybody) ||
      !read_op(placed[kOp], fast_path.default_op, &submission.reduce_op) ||
      !read_factor(placed[kPrescale], &submission.prescale) ||
      !read_factor(placed[kPostscale], &submission.postscale) ||
      !join_name(fast_path.prefix, placed[kName], out->name)) {
    return false;
  }
  submission.name = out->name;
  return true;
}

// Submits the usual call, and sets *handle (to NULL with an exception if the call is refused). Returns false, perhaps
// with an exception, if the Python function must submit the call.
bool submit_fast(const FastPath& fast_path, PyObject* const* placed, Reference* handle) {
  ModuleState* const state = fast_path.state;
  FastSubmission request;
  if (!read_terms(fast_path, placed, &request)) return false;
  if (!read_dense(state, placed[kTensor], fast_path.framework, &request.dense)) {
    PyErr_Clear();
    return state->devices != nullptr &&
           state->devices->submit(state, fast_path.framework, placed[kTensor], request.submission,
                                  handle);
  }
  request.submission.tensor_count = 1;
  request.submission.tensors = &request.dense.view;
  *handle = Reference(hand_over(state, request.submission, placed[kTensor]));
  return true;
}

PyObject* call_function(const FastPath& fast_path, PyObject* const* given, Py_ssize_t count,
                        PyObject* names) {
  Reference arguments(PyTuple_New(count));
  Reference named(PyDict_New());
  if (!arguments || !named) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(given[i]);
    PyTuple_SetItem(arguments.get(), i, given[i]);
  }
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
    if (PyDict_SetItem(named.get(), PyTuple_GetItem(names, i), given[count + i]) != 0) {
      return nullptr;
    }
  }
  return PyObject_Call(fast_path.function, arguments.get(), named.get());
}

PyObject* call(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  const auto* fast_path =
      static_cast<FastPath*>(PyCapsule_GetPointer(PyTuple_GetItem(self, 0), kFastPathCapsule));
  PyObject* placed[kArguments] = {};
  if (fast_path == nullptr) return nullptr;
  Reference handle;
  if (!place(fast_path->state, given, count, names, placed) ||
      !submit_fast(*fast_path, placed, &handle)) {
    PyErr_Clear();
    return call_function(*fast_path, given, count, names);
  }
  if (!handle || !fast_path->waits) return handle.give();
  return finish(fast_path->module, handle.get()).give();
}

void destroy_fast_path(PyObject* capsule) {
  delete static_cast<FastPath*>(PyCapsule_GetPointer(capsule, kFastPathCapsule));
}

}  // namespace

PyObject* fast_path(PyObject* module, PyObject* arguments) {
  const char *name = nullptr, *doc = nullptr, *prefix = nullptr;
  PyObject *function = nullptr, *everybody = nullptr, *described = nullptr;
  int default_op = 0, waits = 0;
  Framework framework{};
  if (!PyArg_ParseTuple(arguments, "sssOOO!ip", &name, &doc, &prefix, &function, &everybody,
                        &PyTuple_Type, &described, &default_op, &waits) ||
      !read_framework(described, &framework)) {
    return nullptr;
  }
  auto* made = new FastPath;
  Reference capsule(PyCapsule_New(made, kFastPathCapsule, destroy_fast_path));
  if (!capsule) {
    delete made;
    return nullptr;
  }
  made->name = name;
  made->doc = doc;
  made->prefix = prefix;
  made->state = state_of(module);
  made->module = module;
  made->function = function;
  made->everybody = everybody;
  made->framework = framework;
  made->default_op = default_op;
  made->waits = waits != 0;
  made->definition = {made->name.c_str(),
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                      kFastCall | METH_KEYWORDS, made->doc.c_str()};
  Reference self(PyTuple_Pack(5, capsule.get(), module, function, everybody, described));
  Reference where(PyObject_GetAttrString(function, "__module__"));
  if (!self || !where) return nullptr;
  return PyCFunction_NewEx(&made->definition, self.get(), where.get());
}

}  // namespace hvd::python
