// Tensors in device memory on the fast path. Each submission has the framework's stream and an event from a pool; with
// HOROVOD_ENABLE_ASYNC_COMPLETION, the submissions of a stream and cycle share an event. A wait then returns before the
// work ends (hvd_wait_on_stream), and objects in use are held until the work ends. Each module has one Devices object;
// guarded by Python's lock.
#pragma once

#include <Python.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dense.h"
#include "reference.h"

namespace hvd::python {

class Devices {
 public:
  // Functions of the CUDA or HIP runtime.
  struct Calls {
    int (*event_create)(void** event, unsigned flags);
    int (*event_destroy)(void* event);
    int (*event_record)(void* event, void* stream);
    int (*stream_is_capturing)(void* stream, int* status);
    int (*get_device)(int* device);
    int (*get_last_error)();
    // NULL if the functions are missing: then every wait lasts until the work ends.
    int (*event_query)(void* event);
    int (*exchange_capture_mode)(int* mode);
  };
  using Event = std::shared_ptr<void>;
  using Clock = std::chrono::steady_clock;

  // `cycle`: the time in which submissions of a stream share an event; negative: every wait lasts until the work ends.
  Devices(const Calls& calls, Reference type, Reference current_stream, Reference runs,
          std::chrono::duration<double> cycle)
      : calls_(calls),
        cycle_(std::chrono::duration_cast<Clock::duration>(cycle)),
        is_ordered_(cycle.count() >= 0 && calls.event_query != nullptr &&
                    calls.exchange_capture_mode != nullptr),
        type_(std::move(type)),
        current_stream_(std::move(current_stream)),
        runs_(std::move(runs)) {}

  // Submits an in-place allreduce with the parameters of `submission`, and sets *handle (to NULL with an exception if
  // it is refused). Returns false, perhaps with an exception, if the Python function must submit the allreduce.
  bool submit(ModuleState* state, const Framework& framework, PyObject* tensor,
              hvd_submission submission, Reference* handle);
  // Sets the event of a submission, and HVD_STREAM_ORDERED if waits return early. Returns the event, which the caller
  // passes to `uses`; NULL: the device has failed.
  Event order(hvd_submission* submission);
  void uses(hvd_handle handle, Event event, bool is_ordered);
  // Call it when the handle has been released. `is_in_use`: a library may still use the work's event.
  void released(hvd_handle handle, bool is_in_use);
  // Returns whether the device's current stream, which it stores in *stream, can order work.
  bool is_ordered_by(int32_t device, void** stream);
  // Returns whether the wait for the handle returns before the work ends; stores the caller's stream in *stream.
  bool waits_early(hvd_handle handle, void** stream);

  // Call begin_finish before and end_finish after a function that finishes work. is_finishing_early() returns whether
  // the entry of the work that this thread now finishes stays held until the caller's stream has completed the work of
  // that function.
  void begin_finish(bool is_early);
  void end_finish();
  bool is_finishing_early() const;
  // Holds a handle's entry until its work and all current work of the stream have ended. Takes over the handle.
  void hold(ModuleState* state, hvd_handle handle, Reference entry, void* stream);
  // Releases the handles whose work has ended, the oldest first.
  void sweep(ModuleState* state);
  // Returns the error of work that failed after the wait for it returned, since the last `forget`; empty: no error.
  const std::string& late_error() const { return late_error_; }
  // Waits until at most `most` handles are held, or for `limit` seconds (negative: no limit). Returns false with an
  // exception if a signal handler raised.
  bool complete(ModuleState* state, size_t most, double limit);
  bool complete_some(ModuleState* state);
  // Call it at the end of the job, because the next job may use another backend.
  void forget(ModuleState* state);

 private:
  struct Terms {
    int32_t dtype, reduce_op, device;
    bool has_factors;
    bool operator==(const Terms&) const = default;
  };

  bool read(const ModuleState* state, const Framework& framework, PyObject* tensor,
            DenseTensor* out);
  bool find_device(const ModuleState* state, PyObject* tensor, hvd_submission* submission);
  bool runs(const ModuleState* state, PyObject* tensor, const hvd_submission& submission,
            int32_t dtype);
  bool find_stream(hvd_submission* submission);
  Event new_event();
  Event record(void* stream);
  int query(void* event);
  bool succeeds(int error);

  // An event that later submissions of the same stream reuse.
  struct Shared {
    void* stream;
    Event event;
    Clock::time_point until;
  };
  struct Use {
    Event event;
    bool is_ordered;
  };
  struct Finish {
    unsigned long thread;
    bool is_early;
  };
  struct Held {
    hvd_handle handle;
    Reference entry;
    Event
        gate;  // event after the work of finish() on the caller's stream, which reads the memory; or NULL
  };

  const Calls calls_;
  const Clock::duration cycle_;
  const bool is_ordered_;
  const Reference type_;  // the exact type of tensors
  // A function from the ordinal of a device to the address of its current stream.
  const Reference current_stream_;
  // a dict with keys (kind, dtype, op, factor, device); the values state what the backend supports
  const Reference runs_;
  std::vector<Terms> known_;  // entries of runs_
  int32_t device_ = HVD_CPU;  // the device of all events; HVD_CPU: no event yet
  std::vector<void*> free_;
  std::vector<Event> kept_;  // events that a library may use until the end of the process
  std::vector<Shared> shared_;
  std::unordered_map<hvd_handle, Use> used_;
  std::vector<Finish> finishing_;
  std::deque<Held> held_;
  // Failed work whose gates the stream has not passed; cleared by `forget`.
  std::deque<Held> failed_;
  std::string late_error_;
};

}  // namespace hvd::python
