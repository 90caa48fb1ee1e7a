#include "device.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace hvd::python {
namespace {

constexpr unsigned kDisableTiming = 2;
constexpr int kCaptureRelaxed = 2;
constexpr int kNotReady = 600;
constexpr std::chrono::microseconds kPause{50};
// Maximum number of held handles. If more are held, the program waits for the oldest handle.
constexpr size_t kMostHeld = 1024;
// The longest wait for a device after the end of a job. Objects that are then still held stay in memory.
constexpr double kLastSeconds = 10;

bool is_factor(double value) { return value != 1 && value != 0; }

}  // namespace

bool Devices::read(const ModuleState* state, const Framework& framework, PyObject* tensor,
                   DenseTensor* out) {
  return reinterpret_cast<PyObject*>(Py_TYPE(tensor)) == type_.get() &&
         read_by_attributes(state, tensor, framework, state->name_of_is_cuda, out);
}

bool Devices::find_device(const ModuleState* state, PyObject* tensor, hvd_submission* submission) {
  Reference device(PyObject_CallMethodObjArgs(tensor, state->name_of_get_device, nullptr));
  if (!device) return false;
  submission->device = static_cast<int32_t>(PyLong_AsLong(device.get()));
  return submission->device >= 0;
}

// `runs_`: Python adds the kinds of work that it has submitted itself.
bool Devices::runs(const ModuleState* state, PyObject* tensor, const hvd_submission& submission,
                   int32_t dtype) {
  const bool has_factors = is_factor(submission.prescale) || is_factor(submission.postscale);
  const Terms terms{dtype, submission.reduce_op, submission.device, has_factors};
  if (std::find(known_.begin(), known_.end(), terms) != known_.end()) return true;
  Reference kind(PyLong_FromLong(submission.op)), operation(PyLong_FromLong(submission.reduce_op));
  Reference factor(PyFloat_FromDouble(has_factors ? 0.5 : 1.0));
  Reference device(PyLong_FromLong(submission.device));
  Reference type(PyObject_GetAttr(tensor, state->name_of_dtype));
  if (!kind || !operation || !factor || !device || !type) return false;
  Reference key(
      PyTuple_Pack(5, kind.get(), type.get(), operation.get(), factor.get(), device.get()));
  if (!key || PyDict_GetItemWithError(runs_.get(), key.get()) != Py_True) return false;
  known_.push_back(terms);
  return true;
}

// Returns whether the call succeeded. Clears the error, which PyTorch would raise after the thread's next kernel.
bool Devices::succeeds(int error) {
  if (error != 0) calls_.get_last_error();
  return error == 0;
}

// The default stream of every device is 0, which the runtime maps to the current device. Therefore the current device
// must be the tensor's device.
bool Devices::find_stream(hvd_submission* submission) {
  int current = HVD_CPU, is_capturing = 0;
  if (!succeeds(calls_.get_device(&current)) || current != submission->device) return false;
  if (device_ == HVD_CPU) device_ = current;
  Reference device(PyLong_FromLong(current));
  if (!device || device_ != current) return false;
  Reference stream(PyObject_CallFunctionObjArgs(current_stream_.get(), device.get(), nullptr));
  if (!stream) return false;
  submission->stream = PyLong_AsVoidPtr(stream.get());
  return PyErr_Occurred() == nullptr &&
         succeeds(calls_.stream_is_capturing(submission->stream, &is_capturing)) &&
         is_capturing == 0;
}

// Returns an event that returns to the pool after its last use; NULL after an error.
Devices::Event Devices::new_event() {
  void* event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  } else if (!succeeds(calls_.event_create(&event, kDisableTiming))) {
    return nullptr;
  }
  return {event, [this](void* used) { free_.push_back(used); }};
}

// Returns an event after the stream's work, or NULL. A batch that has already waited for the event is not affected when
// the event is recorded again.
Devices::Event Devices::record(void* stream) {
  const auto now = is_ordered_ ? Clock::now() : Clock::time_point();
  std::erase_if(shared_, [now](const Shared& one) { return one.until <= now; });
  const auto found = std::find_if(shared_.begin(), shared_.end(),
                                  [stream](const Shared& one) { return one.stream == stream; });
  Event event = found != shared_.end() ? found->event : new_event();
  if (event == nullptr || !succeeds(calls_.event_record(event.get(), stream))) return nullptr;
  if (is_ordered_ && found == shared_.end()) shared_.push_back({stream, event, now + cycle_});
  return event;
}

Devices::Event Devices::order(hvd_submission* submission) {
  Event event = record(submission->stream);
  submission->ready_event = event.get();
  submission->flags |= is_ordered_ ? HVD_STREAM_ORDERED : 0;
  return event;
}

void Devices::uses(hvd_handle handle, Event event, bool is_ordered) {
  used_[handle] = {std::move(event), is_ordered};
}

bool Devices::is_ordered_by(int32_t device, void** stream) {
  hvd_submission submission{};
  submission.device = device;
  if (!is_ordered_ || !find_stream(&submission)) return false;
  *stream = submission.stream;
  return true;
}

bool Devices::waits_early(hvd_handle handle, void** stream) {
  shared_.clear();
  const auto found = used_.find(handle);
  if (found == used_.end() || !found->second.is_ordered) return false;
  const bool is_early = is_ordered_by(device_, stream);
  PyErr_Clear();
  return is_early;
}

void Devices::begin_finish(bool is_early) {
  finishing_.push_back({PyThread_get_thread_ident(), is_early});
}

void Devices::end_finish() {
  const auto is_own = [own = PyThread_get_thread_ident()](const Finish& one) {
    return one.thread == own;
  };
  finishing_.erase(std::find_if(finishing_.rbegin(), finishing_.rend(), is_own).base() - 1);
}

bool Devices::is_finishing_early() const {
  const auto is_own = [own = PyThread_get_thread_ident()](const Finish& one) {
    return one.thread == own;
  };
  const auto found = std::find_if(finishing_.rbegin(), finishing_.rend(), is_own);
  return found != finishing_.rend() && found->is_early;
}

void Devices::hold(ModuleState* state, hvd_handle handle, Reference entry, void* stream) {
  // Without a finish function, the entry is the tensor itself, to which the program holds a reference too.
  Event gate = PyTuple_CheckExact(entry.get()) ? new_event() : nullptr;
  if (gate != nullptr && !succeeds(calls_.event_record(gate.get(), stream))) gate = nullptr;
  held_.push_back({handle, std::move(entry), std::move(gate)});
  sweep(state);
}

// Returns 0 if the stream has passed the event, kNotReady if not, or an error of the device. In the default capture
// mode, the query would invalidate a graph capture by another thread.
int Devices::query(void* event) {
  int mode = kCaptureRelaxed;
  calls_.exchange_capture_mode(&mode);
  const int error = calls_.event_query(event);
  if (error != 0) calls_.get_last_error();
  calls_.exchange_capture_mode(&mode);
  return error;
}

void Devices::sweep(ModuleState* state) {
  while (!held_.empty()) {
    const hvd_handle handle = held_.front().handle;
    char error[kErrorSize];
    int32_t done = 0;
    const bool is_known = state->poll(handle, &done, nullptr, 0) == HVD_OK;
    if (is_known && done == 0) return;
    const int status = is_known ? state->wait(handle, 0, error, sizeof error) : HVD_NOT_FOUND;
    if (is_known && status != HVD_OK && late_error_.empty()) late_error_ = error;
    const Event& gate = held_.front().gate;
    const int found = gate == nullptr ? 0 : query(gate.get());
    if (status == HVD_OK && found == kNotReady) return;
    if (found != 0 && found != kNotReady && late_error_.empty()) {
      late_error_ = "GPU " + std::to_string(device_) +
                    " failed before a result was copied: EventQuery returned error " +
                    std::to_string(found);
    }
    Held over = std::move(held_.front());
    held_.pop_front();
    if (found == 0) {
      release(state, handle, over.entry.get());
    } else {
      failed_.push_back(std::move(over));
    }
  }
}

// Other threads may release held handles meanwhile.
bool Devices::complete(ModuleState* state, size_t most, double limit) {
  const auto since = limit < 0 ? Clock::time_point() : Clock::now();
  for (;;) {
    sweep(state);
    if (held_.size() <= most) return true;
    char error[kErrorSize];
    const hvd_handle handle = held_.front().handle;
    const std::chrono::duration<double> past = Clock::now() - since;
    const double left = limit < 0 ? limit : std::max(0.0, limit - past.count());
    const int status = wait_for_end(state, handle, nullptr, left, error);
    if (status == -1) return false;
    if (status == HVD_IN_PROGRESS) return true;
    if (held_.empty() || held_.front().handle != handle || status != HVD_OK) continue;
    const Event gate = held_.front().gate;
    if (gate == nullptr || query(gate.get()) != kNotReady) continue;
    if (left == 0) return true;
    without_lock([] {
      std::this_thread::sleep_for(kPause);
      return 0;
    });
    if (PyErr_CheckSignals() != 0) return false;
  }
}

bool Devices::complete_some(ModuleState* state) { return complete(state, kMostHeld, -1); }

void Devices::forget(ModuleState* state) {
  known_.clear();
  shared_.clear();
  late_error_.clear();
  const auto until = Clock::now() + std::chrono::duration<double>(kLastSeconds);
  std::deque<Held> rest = std::exchange(failed_, {});
  while (!held_.empty()) {
    rest.push_back(std::move(held_.front()));
    held_.pop_front();
  }
  for (Held& one : rest) {
    // The caller's stream may still read outputs of the runtime.
    int found = 0;
    while (one.gate != nullptr && (found = query(one.gate.get())) == kNotReady &&
           Clock::now() < until) {
      without_lock([] {
        std::this_thread::sleep_for(kPause);
        return 0;
      });
    }
    if (found == 0) {
      release(state, one.handle, one.entry.get());
    } else {
      kept_.push_back(std::move(one.gate));
      Py_INCREF(one.entry.get());
    }
  }
}

bool Devices::submit(ModuleState* state, const Framework& framework, PyObject* tensor,
                     hvd_submission submission, Reference* handle) {
  DenseTensor dense;
  if (state->is_provisional() != 0 || !read(state, framework, tensor, &dense) ||
      !find_device(state, tensor, &submission) ||
      !runs(state, tensor, submission, dense.view.dtype) || !find_stream(&submission)) {
    return false;
  }
  submission.tensor_count = 1;
  submission.tensors = &dense.view;
  Event event = order(&submission);
  if (event == nullptr) return false;
  *handle = Reference(hand_over(state, submission, tensor));
  if (*handle) uses(PyLong_AsUnsignedLongLong(handle->get()), std::move(event), is_ordered_);
  return true;
}

void Devices::released(hvd_handle handle, bool is_in_use) {
  const auto found = used_.find(handle);
  if (found == used_.end()) return;
  if (is_in_use) kept_.push_back(found->second.event);
  used_.erase(found);
}

PyObject* use_devices(PyObject* module, PyObject* arguments) {
  unsigned long long create = 0, destroy = 0, record = 0, is_capturing = 0, device = 0, error = 0;
  unsigned long long query = 0, exchange = 0;
  PyObject *type = nullptr, *current_stream = nullptr, *runs = nullptr;
  double cycle = -1;
  if (!PyArg_ParseTuple(arguments, "KKKKKKKKOOO!d", &create, &destroy, &record, &is_capturing,
                        &device, &error, &query, &exchange, &type, &current_stream, &PyDict_Type,
                        &runs, &cycle)) {
    return nullptr;
  }
  Devices::Calls calls{};
  take_address(&calls.event_create, create);
  take_address(&calls.event_destroy, destroy);
  take_address(&calls.event_record, record);
  take_address(&calls.stream_is_capturing, is_capturing);
  take_address(&calls.get_device, device);
  take_address(&calls.get_last_error, error);
  take_address(&calls.event_query, query);
  take_address(&calls.exchange_capture_mode, exchange);
  ModuleState* state = state_of(module);
  if (state->devices == nullptr) {
    for (PyObject* kept : {type, current_stream, runs}) Py_INCREF(kept);
    state->devices = new Devices(calls, Reference(type), Reference(current_stream), Reference(runs),
                                 std::chrono::duration<double>(cycle));
  }
  Py_RETURN_NONE;
}

PyObject* ready_stream(PyObject* module, PyObject* device) {
  ModuleState* state = state_of(module);
  void* stream = nullptr;
  const auto number = static_cast<int32_t>(PyLong_AsLong(device));
  if (state->devices != nullptr && state->devices->is_ordered_by(number, &stream)) {
    return PyLong_FromVoidPtr(stream);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

PyObject* is_finishing_early(PyObject* module, PyObject*) {
  const Devices* devices = state_of(module)->devices;
  return PyBool_FromLong(devices != nullptr && devices->is_finishing_early() ? 1 : 0);
}

PyObject* complete_early(PyObject* module, PyObject* limit) {
  ModuleState* state = state_of(module);
  const double seconds = PyFloat_AsDouble(limit);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (state->devices == nullptr) Py_RETURN_NONE;
  if (!state->devices->complete(state, 0, seconds)) return nullptr;
  const std::string late = state->devices->late_error();
  if (!late.empty()) return raise_failure(state, HVD_ABORTED, late.c_str(), true);
  Py_RETURN_NONE;
}

PyObject* survive(PyObject* module, PyObject* change) {
  state_of(module)->survivals += PyObject_IsTrue(change) == 1 ? 1 : -1;
  Py_RETURN_NONE;
}

}  // namespace hvd::python
