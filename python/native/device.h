// Tensors in device memory on the fast path: the framework's stream, and an event of a pool for each of them. One
// per module; guarded by Python's lock.
#pragma once

#include <Python.h>

#include <unordered_map>
#include <vector>

#include "dense.h"
#include "reference.h"

namespace hvd::python {

class Devices {
 public:
  // Functions of the CUDA runtime, or of HIP.
  struct Calls {
    int (*event_create)(void** event, unsigned flags);
    int (*event_destroy)(void* event);
    int (*event_record)(void* event, void* stream);
    int (*stream_is_capturing)(void* stream, int* status);
    int (*get_device)(int* device);
    int (*get_last_error)();
  };

  Devices(const Calls& calls, Reference type, Reference current_stream, Reference runs)
      : calls_(calls),
        type_(std::move(type)),
        current_stream_(std::move(current_stream)),
        runs_(std::move(runs)) {}

  // Submits an allreduce in place by the terms of `submission`, and sets *handle; to NULL with an exception if it
  // is refused. Returns false, perhaps with an exception, when the function in Python must submit it.
  bool submit(ModuleState* state, const Framework& framework, PyObject* tensor,
              hvd_submission submission, Reference* handle);
  // The work of the handle is over. `is_in_use`: a library may still use its event.
  void released(hvd_handle handle, bool is_in_use);
  // The job has ended: another one may have another backend.
  void forget() { known_.clear(); }

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
  void* record(void* stream);
  bool succeeds(int error);

  const Calls calls_;
  const Reference type_;            // of tensors, exactly
  const Reference current_stream_;  // (ordinal) -> the address of its stream
  // a dict with keys (kind, dtype, op, factor, device): what the backend takes
  const Reference runs_;
  std::vector<Terms> known_;  // of runs_
  int32_t device_ = HVD_CPU;  // of all events; HVD_CPU: there is none yet
  std::vector<void*> free_;
  std::unordered_map<hvd_handle, void*> used_;
};

}  // namespace hvd::python
