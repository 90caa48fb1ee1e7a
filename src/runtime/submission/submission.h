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

// The members of a group. Values; the calls of the group share them.
struct GroupMembers {
  int32_t id = 0;
  std::string name;            // for messages
  std::vector<int32_t> ranks;  // ascending
};

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
  // Fields of a send or receive that its Request lacks. Request::root is unused.
  struct Message {
    int32_t peer =
        HVD_ANY_RANK;  // the rank at the other end; of a receive from any: once it is known
    int32_t tag = 0;
    double timeout = 0;  // seconds until it fails, unless the other end has matched it; 0: never
    // Used by the thread that makes progress.
    Clock::time_point expires = Clock::time_point::max();
    uint64_t order = 0;      // of a receive, among those of this rank
    uint64_t id = 0;         // of the offer of its data; 0: there was none
    size_t moved = 0;        // bytes that this rank has sent or received
    size_t taken = 0;        // bytes of sent pieces that the receiver has taken
    bool is_lent = false;    // the receiver copies the memory of the send
    uint32_t traced = 0;     // number of its transfer in the timeline
    uint32_t traced_in = 0;  // the timeline that knows it as `traced_as`
    uint32_t traced_as = 0;
  };

  // Fields of a call of a group that its Request lacks.
  struct GroupCall {
    std::shared_ptr<const GroupMembers> members;  // null: no call of a group
    uint64_t number = 0;  // among the calls of the group, from 1; when it starts
    int32_t op = 0;       // hvd_group_call.op; the request has the operation that does its work
    int32_t tag = 0;
    const void* input = nullptr;
    void* output = nullptr;
    int64_t count = 0;            // hvd_group_call.count
    std::vector<int64_t> counts;  // alltoall: elements to each member, then from each
    bool begins_step = false;
  };

  // Set by the submitting thread.
  Request request;
  int32_t process_set = 0;
  uint32_t set = 0;  // serial number of the process set
  std::vector<Tensor> tensors;
  Message message;
  GroupCall group;
  void* stream = nullptr;         // the framework's, where the request is on a device
  const char* program = nullptr;  // hvd_submission.program
  void* ready_event = nullptr;    // after which the inputs may be read; nullptr: they may
  bool keeps_tensors = false;     // the user keeps them when they are `in_use`
  bool is_trial = false;          // HVD_TRIAL
  bool is_ordered = false;        // HVD_STREAM_ORDERED
  int32_t own_device = HVD_CPU;   // hvd_submission.device
  uint64_t bytes = 0;
  Name* name = nullptr;        // nullptr: a send, a receive or a call of a group
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
  uint32_t units_ahead = 0;  // those that are not on a stream yet
  bool has_left = false;  // its name and memory are no longer in flight, because it is on a stream
  std::string own_name;   // from then on
  void* event = nullptr;  // of the stream; set before is_on_stream
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
  // On its device's stream, or done: outputs may be read once this is true (acquire).
  std::atomic<bool> is_on_stream{false};

  // Guarded by HandleTable::mutex_. An annotation cannot name the mutex: a Submission has no reference to the table.
  uint32_t index = 0;
  uint32_t incarnation = 0;
  uint32_t users = 0;
  bool claimed = false;  // the user holds a handle
  bool finished = false;
  bool is_in_use_early = false;  // the user goes on with the result since before it was finished
  bool ends_process = false;     // then an error ends the process
};

inline bool is_message(const Submission& submission) {
  return traits_of(submission.request.op).is_point_to_point;
}
// Returns the submission's name in reports: the user's name, or "recv from rank 1, tag 0".
std::string name_text(const Submission& submission);
// Returns the name with the operation: "allreduce 'grad'".
std::string operation_text(const Submission& submission);

}  // namespace hvd::runtime
