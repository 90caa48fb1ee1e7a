// A user's request: its parameters, the addresses of its data, and its result. The submitting thread
// fills the Submission. The progress thread owns it until `done`; afterwards waiting threads read it.
// HandleTable keeps and reuses the objects, so that steady traffic allocates no memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/status.h"
#include "horovod/horovod.h"
#include "horovod/plugin_framework.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

// Owns the memory of an output that belongs to the runtime: host memory, or device memory, which the
// framework releases. Any thread.
struct OutputRelease {
  const hvd_framework* framework = nullptr;  // nullptr: host memory
  int32_t device = HVD_CPU;
  void operator()(std::byte* memory) const {
    if (framework == nullptr) {
      delete[] memory;
    } else {
      framework->vtable->release(framework->context, device, memory);
    }
  }
};
using OutputMemory = std::unique_ptr<std::byte, OutputRelease>;

struct MemoryUse;  // tensor_table.h
struct Name;       // tensor_table.h

// The members of a group. Immutable; shared by the group's calls.
struct GroupMembers {
  int32_t id = 0;
  std::string name;            // for messages
  std::vector<int32_t> ranks;  // ascending
};

struct Submission {
  struct Tensor {
    const void* input = nullptr;
    void* output = nullptr;
    size_t bytes = 0;         // bytes of the input
    bool reads = false;       // this rank reads the input
    size_t output_bytes = 0;  // bytes of the caller's output
    // The entries of output and input in MemoryTable while in flight.
    MemoryUse* output_use = nullptr;
    MemoryUse* input_use = nullptr;
  };
  // An output that the runtime owns.
  struct Output {
    OutputMemory data;
    std::vector<int64_t> shape;
  };
  // Fields of a send or receive that its Request lacks. Request::root is the rank that the user
  // named.
  struct Message {
    int32_t peer = HVD_ANY_RANK;  // the other rank; for a receive from any rank, set at the match
    int32_t tag = 0;
    double timeout = 0;  // seconds to a match before the message fails; 0: no limit
    // The progress thread owns these fields.
    Clock::time_point expires = Clock::time_point::max();
    uint64_t order = 0;      // order of the start among this rank's sends and receives
    uint64_t id = 0;         // id of the offer of the message; 0: not offered
    size_t moved = 0;        // bytes that this rank has sent or received
    size_t taken = 0;        // bytes of sent pieces that the receiver has taken
    bool is_lent = false;    // the receiver copies the send's memory
    uint32_t traced = 0;     // number of the transfer in the timeline
    uint32_t traced_in = 0;  // the timeline of `traced_as`
    uint32_t traced_as = 0;
  };

  // Fields of a group's call that its Request lacks.
  struct GroupCall {
    std::shared_ptr<const GroupMembers> members;  // null: not a call of a group
    uint64_t number = 0;  // number among the group's calls, from 1; set when the call starts
    int32_t op = 0;       // hvd_group_call.op; the request has the implementing operation
    int32_t tag = 0;
    const void* input = nullptr;
    void* output = nullptr;
    int64_t count = 0;            // hvd_group_call.count; alltoall: all elements sent
    std::vector<int64_t> counts;  // alltoall: elements to each member, then from each member
    bool begins_step = false;
  };

  // Set by the submitting thread.
  Request request;
  int32_t process_set = 0;
  uint32_t set = 0;  // serial number of the process set
  std::vector<Tensor> tensors;
  Message message;
  GroupCall group;
  void* stream = nullptr;         // the framework's stream, if the request is on a device
  const char* program = nullptr;  // hvd_submission.program
  void* ready_event = nullptr;    // the inputs may be read after this event; nullptr: at once
  bool keeps_tensors = false;     // the user keeps tensors that are `in_use`
  bool is_trial = false;          // HVD_TRIAL
  bool is_ordered = false;        // HVD_STREAM_ORDERED
  int32_t own_device = HVD_CPU;   // hvd_submission.device
  uint64_t bytes = 0;
  Name* name = nullptr;        // nullptr: a send, a receive or a call of a group
  Submission* next = nullptr;  // next in the submission queue

  // The progress thread owns these fields.
  Submission* older = nullptr;  // next older unfinished submission
  Submission* newer = nullptr;
  Clock::time_point since{};   // when the submission left the submission queue
  uint32_t stall_reports = 0;  // the number of reports by the stall inspector
  bool is_held = false;        // the submission waits for its start
  bool accepted = false;       // the process set has accepted the submission
  bool planned = false;
  uint32_t announced_id = 0;  // cache id in this rank's announcement; 0: announced in full
  uint32_t units_left = 0;
  uint32_t units_ahead = 0;  // parts that are not on a stream yet
  bool has_left = false;     // on a stream: name and memory are not in flight
  std::string own_name;      // copy of the name if has_left
  void* event = nullptr;     // event of the stream; set before is_on_stream
  std::vector<Output> outputs;
  std::vector<int32_t> received_splits;
  int32_t last_joined_rank = -1;
  int32_t registered = -1;  // process set that was added, or is being removed
  bool in_use = false;      // a library may use the tensors until the process ends
  Status status;

  // False until the user calls hvd_start.
  std::atomic<bool> is_started{true};
  // status, outputs and derived values may be read once `done` is true (acquire).
  std::atomic<bool> done{false};
  // True if the submission is on its device's stream or done: outputs may be read then (acquire).
  std::atomic<bool> is_on_stream{false};

  // Guarded by HandleTable::mutex_. An annotation cannot name the mutex: a Submission has no reference to the table.
  uint32_t index = 0;
  uint32_t incarnation = 0;
  uint32_t users = 0;
  bool claimed = false;  // the user holds a handle
  bool finished = false;
  bool is_in_use_early = false;  // the user used the result before `done`
  bool ends_process = false;     // an error then ends the process
};

inline bool is_message(const Submission& submission) {
  return traits_of(submission.request.op).is_point_to_point;
}
// Returns the submission's name in reports: the user's name, or "recv from rank 1, tag 0".
std::string name_text(const Submission& submission);
// Returns the name with the operation: "allreduce 'grad'".
std::string operation_text(const Submission& submission);

// The queue from any number of submitting threads to the progress thread, first in, first out. Neither side waits or
// allocates. PendingSubmissions owns the queue.
class SubmissionQueue {
 public:
  void push(Submission* submission) {
    Submission* head = head_.load(std::memory_order_relaxed);
    do {
      submission->next = head;
    } while (!head_.compare_exchange_weak(head, submission, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  }
  bool empty() const { return head_.load(std::memory_order_seq_cst) == nullptr; }

  // Takes all submissions as a chain by `next`, the oldest first; nullptr if empty.
  Submission* take_all() {
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    Submission* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Submission* oldest = nullptr;
    while (newest != nullptr) {
      Submission* older = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

 private:
  alignas(64) std::atomic<Submission*> head_{nullptr};
};

// Maps handles to submissions. A handle is a slot's index and its incarnation, which detects stale
// handles. Runtime owns the table. Any thread.
class HandleTable {
 public:
  // Incarnations begin at `first`, so that handles of an earlier runtime are invalid.
  explicit HandleTable(uint32_t first) : first_(first) {}
  ~HandleTable();

  // Returns a free submission, and its handle for the user.
  Submission* claim(hvd_handle* handle);
  // Frees a submission that was claimed but not submitted.
  void unclaim(Submission* submission);

  // Finds a submission and keeps it until unpin(); nullptr if the handle does not exist.
  Submission* pin(hvd_handle handle);
  void unpin(Submission* submission);

  // Releases the user's handle. Returns false if the handle does not exist. Sets *in_use, unless
  // `in_use` is null, to true if a library may use the tensors until the process ends.
  bool release(hvd_handle handle, bool* in_use = nullptr);
  // Marks submissions as being on a stream.
  void go_on(std::span<Submission* const> submissions);
  // Records that the user uses the result of a submission on a stream. Returns false if the submission is done, or
  // after fail_early().
  bool use_early(Submission* submission, bool ends_process);
  // Prevents further early use of results, because `newest` and all older submissions will fail.
  // Returns the error of a submission whose result is in use and whose failure ends the process, or ok.
  Status fail_early(Submission* newest, const Status& cause);
  // Marks submissions as done, and frees the ones that the user has released. Returns the error of a
  // submission whose result is in use and whose failure ends the process, or ok.
  Status finish(std::span<Submission* const> submissions);

 private:
  static Status late_error(const Submission& submission, const Status& cause);
  Submission* find(hvd_handle handle) HVD_REQUIRES(mutex_);
  void recycle(Submission* submission) HVD_REQUIRES(mutex_);

  const uint32_t first_;
  Mutex mutex_;
  std::deque<Submission> slots_ HVD_GUARDED_BY(mutex_);  // stable addresses
  std::vector<Submission*> free_ HVD_GUARDED_BY(mutex_);
  bool has_failed_ HVD_GUARDED_BY(mutex_) = false;
};

}  // namespace hvd::runtime
