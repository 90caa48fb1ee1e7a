// One request of a user: its parameters, the addresses of its data, and its result. The submitting
// thread fills it. The progress thread owns it until `done`; afterwards waiting threads read it.
// HandleTable keeps and reuses the objects, so that steady traffic allocates no memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/submission/output_memory.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

struct MemoryUse;  // memory_table.h
struct Name;       // tensor_table.h

struct Submission {
  struct Tensor {
    const void* input = nullptr;
    void* output = nullptr;
    size_t bytes = 0;         // of the input
    bool reads = false;       // this rank's input
    size_t output_bytes = 0;  // of the caller's output
    // In flight: what MemoryTable has of it.
    MemoryUse* output_use = nullptr;
    MemoryUse* input_use = nullptr;
  };
  // An output that the runtime owns.
  struct Output {
    OutputMemory data;
    std::vector<int64_t> shape;
  };

  // Set by the submitting thread.
  Request request;
  int32_t process_set = 0;
  uint32_t set = 0;  // serial number of the process set
  std::vector<Tensor> tensors;
  void* stream = nullptr;         // the framework's, where the request is on a device
  const char* program = nullptr;  // hvd_submission.program
  void* ready_event = nullptr;    // after which the inputs may be read; nullptr: they may
  bool keeps_tensors = false;     // the user keeps them when they are `in_use`
  bool is_trial = false;          // HVD_TRIAL
  int32_t own_device = HVD_CPU;   // hvd_submission.device
  uint64_t bytes = 0;
  Name* name = nullptr;
  Submission* next = nullptr;  // in the submission queue

  // Used by the thread that makes progress.
  Submission* older = nullptr;  // among the unfinished ones
  Submission* newer = nullptr;
  Clock::time_point since{};   // when it was drained
  uint32_t stall_reports = 0;  // how often the stall inspector has reported it
  bool is_held = false;        // until it is started
  bool accepted = false;       // by its process set
  bool planned = false;
  uint32_t announced_id = 0;  // cache id in this rank's announcement; 0: announced in full
  uint32_t units_left = 0;
  std::vector<Output> outputs;
  std::vector<int32_t> received_splits;
  int32_t last_joined_rank = -1;
  int32_t registered = -1;  // process set that was added, or is being removed
  bool in_use = false;      // a library may use the tensors until the process ends
  Status status;

  // False while the user's hvd_start is still to come.
  std::atomic<bool> is_started{true};
  // status, outputs and what follows from them may be read once this is true (acquire).
  std::atomic<bool> done{false};

  // Guarded by HandleTable::mutex_. An annotation cannot name the mutex: a Submission has no reference to the table.
  uint32_t index = 0;
  uint32_t incarnation = 0;
  uint32_t users = 0;
  bool claimed = false;  // the user holds a handle
  bool finished = false;
};

}  // namespace hvd::runtime
