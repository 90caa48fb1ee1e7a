// horovod._native: the functions of the C ABI that every training step calls, for Python. Built on CPython's limited
// API, so that one build serves every Python from 3.8 on. Independent of frameworks.
#include <cstring>
#include <initializer_list>
#include <utility>

#include "device.h"
#include "state.h"

namespace hvd::python {

namespace {

int clear(PyObject* module) {
  ModuleState* state = state_of(module);
  if (state == nullptr) return 0;
  for (PyObject** held :
       {&state->fail, &state->pending, &state->abandoned, &state->lost, &state->name_of_dtype,
        &state->name_of_shape, &state->name_of_layout, &state->name_of_is_cpu,
        &state->name_of_is_cuda, &state->name_of_get_device, &state->name_of_data_ptr,
        &state->name_of_is_contiguous, &state->name_of_grad, &state->name_of_array_struct,
        &state->names_of_arguments}) {
    Py_CLEAR(*held);
  }
  delete std::exchange(state->devices, nullptr);
  return 0;
}

int traverse(PyObject* module, visitproc visit, void* arg) {
  ModuleState* state = state_of(module);
  if (state == nullptr) return 0;
  Py_VISIT(state->fail);
  Py_VISIT(state->pending);
  Py_VISIT(state->abandoned);
  Py_VISIT(state->lost);
  return 0;
}

PyObject* interned(std::initializer_list<const char*> names) {
  PyObject* made = PyTuple_New(static_cast<Py_ssize_t>(names.size()));
  Py_ssize_t at = 0;
  for (const char* name : names) PyTuple_SetItem(made, at++, PyUnicode_InternFromString(name));
  return made;
}

int execute(PyObject* module) {
  ModuleState* state = state_of(module);
  std::memset(static_cast<void*>(state), 0, sizeof *state);
  state->pending = PyDict_New();
  state->abandoned = PyList_New(0);
  state->lost = PySet_New(nullptr);
  state->name_of_dtype = PyUnicode_InternFromString("dtype");
  state->name_of_shape = PyUnicode_InternFromString("shape");
  state->name_of_layout = PyUnicode_InternFromString("layout");
  state->name_of_is_cpu = PyUnicode_InternFromString("is_cpu");
  state->name_of_is_cuda = PyUnicode_InternFromString("is_cuda");
  state->name_of_get_device = PyUnicode_InternFromString("get_device");
  state->name_of_data_ptr = PyUnicode_InternFromString("data_ptr");
  state->name_of_is_contiguous = PyUnicode_InternFromString("is_contiguous");
  state->name_of_grad = PyUnicode_InternFromString("grad");
  state->name_of_array_struct = PyUnicode_InternFromString("__array_struct__");
  state->names_of_arguments = interned(
      {"tensor", "average", "name", "op", "prescale_factor", "postscale_factor", "process_set"});
  if (PyErr_Occurred() != nullptr) return -1;
  Py_INCREF(state->pending);
  if (PyModule_AddObject(module, "pending", state->pending) != 0) {
    Py_DECREF(state->pending);
    return -1;
  }
  return 0;
}

PyObject* bind(PyObject* module, PyObject* arguments) {
  ModuleState* state = state_of(module);
  unsigned long long submit = 0, poll = 0, wait = 0, get_output = 0, release = 0;
  unsigned long long is_provisional = 0, start = 0, group_submit = 0, wait_on_stream = 0;
  PyObject* fail = nullptr;
  if (!PyArg_ParseTuple(arguments, "KKKKKKKKKOk", &submit, &poll, &wait, &get_output, &release,
                        &is_provisional, &start, &group_submit, &wait_on_stream, &fail,
                        &state->main_thread)) {
    return nullptr;
  }
  take_address(&state->submit, submit);
  take_address(&state->poll, poll);
  take_address(&state->wait, wait);
  take_address(&state->get_output, get_output);
  take_address(&state->release, release);
  take_address(&state->is_provisional, is_provisional);
  take_address(&state->start, start);
  take_address(&state->group_submit, group_submit);
  take_address(&state->wait_on_stream, wait_on_stream);
  Py_INCREF(fail);
  Py_XDECREF(state->fail);
  state->fail = fail;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS,
     "bind(submit, poll, wait, get_output, release, is_provisional, start, group_submit, "
     "wait_on_stream, fail, main_thread)\n\n"
     "Addresses of the C functions, the function that raises, and the main thread's identifier."},
    {"submit", submit, METH_VARARGS,
     "submit(kind, name, tensors, keep, finish, reduce_op, root_rank, process_set, prescale, "
     "postscale, splits, device, stream, event, check, flags)\n\n"
     "Returns the handle. tensors: (input, output, dtype, shape, name or None) each. The last five "
     "may be left out. With `check`, the work awaits its start; threads that wait for it call "
     "check() now and then."},
    {"group_submit", group_submit, METH_VARARGS,
     "group_submit(group, op, reduce_op, dtype, count, input, output, root, tag, prescale, counts, "
     "keep, finish, begins_step, seconds)\n\n"
     "Calls a collective of a group, and returns the handle. Waits for at most the seconds while "
     "work in flight uses the memory. counts: None, or of an alltoall the elements to each member, "
     "then from each member."},
    {"group_reduce", group_reduce, METH_VARARGS,
     "group_reduce(group, reduce_op, (type, dtypes, layout, exchange), tensor, seconds)\n\n"
     "An allreduce in place of a group, and the wait for it. None once it is complete; the handle "
     "after the seconds, negative: no limit; False, with nothing called, for a tensor that is not "
     "dense."},
    {"start_after", start_after, METH_VARARGS,
     "start_after(launch, stream, handle): begins the work when the stream has reached this point, "
     "by the function at the address `launch`, cudaLaunchHostFunc; or now, if that is 0. Returns "
     "the error of that function, or 0."},
    {"fast_path", fast_path, METH_VARARGS,
     "fast_path(name, doc, prefix, function, process_set, (type, dtypes, layout), op, waits)\n\n"
     "An allreduce in place that takes the arguments of `function`, and calls it unless they are a "
     "dense tensor, a name, and no process set but the one given. `op` is the default."},
    {"use_devices", use_devices, METH_VARARGS,
     "use_devices(event create, event destroy, event record, stream is capturing, get device, get "
     "last error, event query, exchange capture mode, type, current stream, runs, cycle)\n\n"
     "Takes tensors of the type that are in the memory of the thread's device into the fast paths. "
     "The first eight are addresses of functions of CUDA; current_stream(ordinal) returns one. "
     "`runs` is a dict with a key (kind, dtype, op, factor, device) for what the backend takes, of "
     "the value True. `cycle`: seconds in which submissions of a stream share an event; then waits "
     "end before the work; negative: neither. Later calls have no effect."},
    {"ready_stream", ready_stream, METH_O,
     "ready_stream(device): the address of the current stream, if work can be ordered by it; else "
     "None."},
    {"is_finishing_early", is_finishing_early, METH_NOARGS,
     "is_finishing_early(): whether the entry of the handle that is being finished is held until "
     "all that is on the current stream is over."},
    {"complete_early", complete_early, METH_O,
     "complete_early(limit): returns once all work is complete for which a wait has ended before. "
     "Raises an error of it. limit: the most seconds in which none of it completes; negative: no "
     "limit."},
    {"survive", survive, METH_O,
     "survive(begins): the program begins, or ends, to return to a commit after an error of such "
     "work, which otherwise ends the process."},
    {"poll", poll, METH_O, "poll(handle): whether the work is complete."},
    {"wait", wait, METH_O,
     "wait(handle): the result, or what the work failed with; ends the claim on it."},
    {"wait_for", wait_for, METH_VARARGS,
     "wait_for(handle, seconds): as wait. Raises TimeoutError after that time, and the handle "
     "stays "
     "valid; negative: no limit."},
    {"synchronize", synchronize, METH_O,
     "synchronize(handle)\n--\n\n"
     "Waits until the work is complete and returns its result: a tensor, or a tuple of tensors\n"
     "for the grouped forms.\n\n"
     "None for a handle that was synchronized already. Raises what the work failed with."},
    {"output", output, METH_VARARGS,
     "output(handle, index): (address, dtype, shape, received splits or None, last joined rank, "
     "process set)."},
    {"abandon", abandon, METH_O,
     "abandon(handle): nobody will wait for it; it is released once it is complete."},
    {"release_all", release_all, METH_NOARGS, "release_all(): what is pending ends with an error."},
    {"bucket_new", bucket_new, METH_VARARGS,
     "bucket_new(address, elements, dtype, element size, slots)\n\n"
     "Gradients that travel as one request: packed memory, and slots: (address in it, or 0 for a "
     "tensor of the request by itself, elements) each."},
    {"bucket_gather", bucket_gather, METH_VARARGS,
     "bucket_gather(bucket, lists)\n\n"
     "lists: (params, residents, held, keep, (type, dtypes, layout, exchange)). Copies each "
     "param's small "
     "gradient into its slot, but for those of `residents` (or None), which are there already; "
     "`held` gets them all. Returns whether they are the objects of the last time; or the list of "
     "those that have no dense gradient, and whose slots are zero, or without a place; or -1, with "
     "nothing copied, where a resident has gone."},
    {"bucket_place", bucket_place, METH_VARARGS,
     "bucket_place(bucket, slot, address): zeros that stand for a gradient that is a tensor by "
     "itself."},
    {"bucket_submit", bucket_submit, METH_VARARGS,
     "bucket_submit(bucket, (name, op, prescale, postscale, process set), keep): the handle of an "
     "allreduce of what was gathered; the list `keep` stays referenced until it is complete."},
    {"bucket_scatter", bucket_scatter, METH_O,
     "bucket_scatter(bucket): copies the slots back to where bucket_gather found the gradients."},
    {"bucket_run", bucket_run, METH_VARARGS,
     "bucket_run(bucket, lists, (name, op, prescale, postscale, process set))\n\n"
     "All of it, where bucket_gather finds all gradients; else what that returns. Interrupted by a "
     "signal's handler, the handle of what goes on is the last in the list of what must stay "
     "alive."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(&execute)},
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "horovod._native",
    "The C ABI's hot calls.",
    sizeof(ModuleState),
    methods,
    slots,
    traverse,
    clear,
    [](void* module) { clear(static_cast<PyObject*>(module)); },
};

}  // namespace

PyObject* raise_failure(ModuleState* state, int status, const char* message, bool negotiated) {
  PyObject* text =
      PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)), "replace");
  if (text == nullptr) return nullptr;
  PyObject* none =
      PyObject_CallFunction(state->fail, "iOi", status, text, static_cast<int>(negotiated));
  Py_DECREF(text);
  if (none != nullptr) {
    Py_DECREF(none);
    PyErr_SetString(PyExc_SystemError, "a failure was not raised");
  }
  return nullptr;
}

}  // namespace hvd::python

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&hvd::python::definition); }
