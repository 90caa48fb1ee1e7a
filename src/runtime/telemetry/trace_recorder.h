// Records the events of this rank while a timeline runs, in memory of fixed size. Counts and drops
// events when the memory is full. Without a timeline each call is one branch. Instruments owns the recorder.
// Callers hold the progress lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/metrics/metrics.h"
#include "base/operations/op_traits.h"
#include "runtime/submission/submission.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

// Records of a rank for a running timeline: slots of 16 bytes in the order of time, as they are sent to the root. A
// record is a slot, or a slot and the bytes that follow it. Records are plain data from another process; readers must
// validate every field.
enum class TraceKind : uint8_t {
  kName = 1,  // the meaning of the number `name` from now on; `time` bytes of a TraceName follow
  kWord = 2,  // the name of the activity `detail`; `time` bytes of text follow
  kNegotiate = 3,  // this rank has announced `name`
  kAgreed = 4,     // all ranks have announced `name`, which will run
  kRefused = 5,    // all ranks have announced `name`, with different requests
  kBatch = 6,      // batch `name` of operation `detail` and element type `dtype` starts
  kMember = 7,     // `name` is in the last started batch; `time`: a group call's number, or 0
  kActivity = 8,   // batch `name` begins the activity `detail`; 0: only ends the last one
  kDone = 9,       // batch `name` is complete
  kCycle = 10,     // the submissions of a batching window were announced
  kOnStream = 11,  // batch `name` is on its device's stream, and the rank goes on without it
  kBegan = 12,     // the device began batch `name`; not in the order of time
  kEnded = 13,     // the device ended batch `name`; follows kBegan
};

struct TraceSlot {
  int64_t time = 0;  // nanoseconds of the rank's monotonic clock
  uint32_t name = 0;
  TraceKind kind{};
  uint8_t detail = 0;
  uint8_t dtype = 0;
  uint8_t unused = 0;
};
static_assert(sizeof(TraceSlot) == 16);

struct TraceName {
  std::string text;
  int32_t process_set = 0;
  int32_t op = HVD_ALLREDUCE;
  std::vector<TensorSpec> tensors;
};
constexpr size_t kLongestTraceName = 512;

void encode(const TraceName& name, ByteWriter& out);
Status decode(ByteView bytes, TraceName* name);

// Returns the number of slots for the bytes after a kName or kWord.
constexpr size_t slots_of(size_t bytes) {
  return (bytes + sizeof(TraceSlot) - 1) / sizeof(TraceSlot);
}

class TraceRecorder {
 public:
  static constexpr size_t kSlots = 64 * 1024;

  bool is_on() const { return on_; }
  void start(bool mark_cycles);
  void stop() { on_ = false; }

  // Moves the recorded slots to `slots`, and reuses the memory of `slots`.
  void take(std::vector<TraceSlot>* slots);
  // Returns the number of events lost since the start.
  uint64_t dropped() const { return dropped_; }
  bool empty() const { return slots_.empty(); }
  bool is_filling() const { return slots_.size() >= kSlots / 4; }
  // Returns the time of the first event that was not taken yet.
  Clock::time_point since() const { return since_; }

  void negotiate(const Submission& submission) {
    if (on_) [[unlikely]]
      note_negotiate(submission);
  }
  void decide(const Submission& submission, bool agreed) {
    if (on_) [[unlikely]]
      note_decision(submission, agreed);
  }
  void cycle() {
    if (on_ && mark_cycles_) [[unlikely]]
      add({now(), 0, TraceKind::kCycle});
  }
  // Records the start of a batch. Returns the batch's number for later calls, or 0 if it is not recorded.
  uint32_t start_batch(int32_t op, int32_t dtype, std::span<Submission* const> submissions) {
    if (on_ && !traits_of(op).is_nameless) [[unlikely]] {
      return note_batch(op, dtype, submissions);
    }
    return 0;
  }
  // Records that a send or receive waits for its match.
  void wait_for_peer(Submission* message) {
    if (on_) [[unlikely]]
      note_wait(message);
  }
  // Like start_batch, for a call of a group.
  uint32_t start_call(const Submission& call) {
    if (on_) [[unlikely]]
      return note_call(call);
    return 0;
  }
  // Like start_batch, for the bytes of a send or receive.
  uint32_t start_transfer(Submission* message, bool is_local) {
    if (on_) [[unlikely]]
      return note_transfer(message, is_local);
    return 0;
  }
  // Records an activity of a batch; nullptr ends the last activity and begins none.
  void activity(uint32_t batch, const char* name) {
    if (on_ && batch != 0) [[unlikely]]
      note_activity(batch, name);
  }
  // Records that the batch is on its device's stream: its events end, except that of the device.
  void leave(uint32_t batch) {
    if (on_ && batch != 0) [[unlikely]]
      add({now(), batch, TraceKind::kOnStream});
  }
  // Records when the device executed the batch. Call it before end_batch().
  void ran(uint32_t batch, Clock::time_point began, Clock::time_point ended) {
    if (!on_ || batch == 0) [[likely]]
      return;
    add({began.time_since_epoch().count(), batch, TraceKind::kBegan});
    add({ended.time_since_epoch().count(), batch, TraceKind::kEnded});
  }
  void end_batch(uint32_t batch) {
    if (on_ && batch != 0) [[unlikely]]
      add({now(), batch, TraceKind::kDone});
  }

 private:
  static int64_t now() { return Clock::now().time_since_epoch().count(); }
  bool add(const TraceSlot& slot);
  bool add_record(TraceSlot slot, ByteView bytes);
  bool is_known(const Submission& submission) const;
  bool define(const Submission& submission);
  bool define(Submission* message);
  uint32_t add_name(const Submission& submission);
  uint32_t add_name(const TraceName& name);
  void note_wait(Submission* message);
  uint32_t note_transfer(Submission* message, bool is_local);
  void note_negotiate(const Submission& submission);
  void note_decision(const Submission& submission, bool agreed);
  uint32_t note_call(const Submission& call);
  uint32_t note_batch(int32_t op, int32_t dtype, std::span<Submission* const> submissions);
  void note_activity(uint32_t batch, const char* name);

  bool on_ = false;
  bool mark_cycles_ = false;
  uint32_t run_ = 0;  // number of the timeline
  uint32_t next_name_ = 1;
  uint32_t next_batch_ = 1;  // continues in the next timeline, where batches of this one may end
  uint64_t dropped_ = 0;
  Clock::time_point since_{};
  std::vector<TraceSlot> slots_;
  std::vector<const char*> words_;  // names of activities by id - 1; static storage
  ByteWriter bytes_;
  // Numbers of the names of groups' calls, by group, operation, dtype and number of elements.
  std::map<std::array<int64_t, 4>, uint32_t> calls_;
};

// The counters and the trace recorder, to which the runtime core and the executor report events.
// RuntimeCore owns this object, which owns the recorder and points to counters that outlive it.
// Callers hold the progress lock.
struct Instruments {
  explicit Instruments(RankCounters* counters)
      : metrics(&counters->metrics),
        steps(&counters->steps),
        names(&counters->names),
        announced(&counters->announced) {}
  TraceRecorder trace;
  Metrics* const metrics;
  StepLog* const steps;
  OperationNames* const names;
  Announcements* const announced;
};

}  // namespace hvd::runtime
