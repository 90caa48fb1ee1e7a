// Converts the recorded events of ranks to a Chrome trace: a process for each tensor, with a thread
// for each rank, and times of the root's clock. Events stay nested even if some were lost. Checks
// its input. TraceWriter owns TraceFormat, on a separate thread. Does no I/O.
//
//   B NEGOTIATE_ALLREDUCE, X <rank>, E, B ALLREDUCE, B SHM_ALLREDUCE, E, E {dtype, shape}
//   in the thread <ranks + rank>, for its device: X NCCL_ALLREDUCE
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

void put_number(std::string& text, int64_t number);
// Appends microseconds with three decimal places.
void put_time(std::string& text, double micros);
// Returns, for example, "[2, 3]"; truncates a long shape.
std::string shape_text(const std::vector<int64_t>& shape);
std::string upper_case(std::string_view text);

// The records in one message of a rank.
struct TraceBatch {
  int32_t rank = 0;
  int64_t offset = 0;    // root's clock minus the rank's, in nanoseconds
  int64_t error = 0;     // largest error of `offset`, in nanoseconds
  uint64_t dropped = 0;  // events of this rank that were lost since the start
  std::string host;
  std::vector<TraceSlot> slots;
};

class TraceFormat {
 public:
  // Receives the elements of the trace's array.
  using Sink = std::function<void(std::string_view value)>;
  // `start`: start time on the root's clock. `epoch_micros`: the same time since the epoch.
  TraceFormat(int32_t size, int64_t start, int64_t epoch_micros, Sink sink);

  void add(const TraceBatch& batch);
  // Ends all open events, and adds the numbers of lost events.
  void finish();

 private:
  static constexpr size_t kMostTensors = 1 << 18;
  static constexpr size_t kMostRunning = 1024;

  struct Tensor {
    std::string op;  // "ALLREDUCE"
    bool is_message = false;
    // Threads with a name in the trace: those of the ranks, and those of their devices.
    std::vector<bool> named;
  };
  // A tensor to which a rank's number refers. The number of a group refers to several tensors.
  struct Part {
    uint32_t tensor = 0;  // index in tensors_; the pid in the trace is index + 1
    uint8_t dtype = 0;
    std::string shape;
  };
  struct Running {
    uint8_t dtype = 0;
    bool active = false;    // an activity is open
    bool has_left = false;  // on a stream: its events have ended
    uint8_t word = 0;       // its last activity
    int64_t call = 0;       // number of the call in its group, or 0
    double began = -1;      // on the device, in microseconds; -1: unknown
    std::vector<uint32_t> names = {};
  };
  struct Rank {
    std::unordered_map<uint32_t, std::vector<Part>> names;
    std::vector<std::string> words;
    std::unordered_map<uint32_t, Running> running;
    uint32_t last_batch = 0;
    std::unordered_map<uint32_t, uint32_t> depth;  // number of open events, by tensor
    int64_t offset = 0;
    int64_t error = -1;  // clock error that was written last, or -1
    uint64_t dropped = 0;
    uint64_t lost = 0;  // events lost here, because of too many tensors
    double last_time = 0;
  };

  void describe(int32_t rank, const TraceBatch& batch);
  void define(Rank& rank, uint32_t number, ByteView bytes);
  bool part_of(const TraceName& name, size_t index, Part* part);
  void set_time(Rank& rank, const TraceSlot& slot);
  void apply(int32_t rank, const TraceSlot& slot);
  void negotiate(int32_t rank, uint32_t name);
  void add_member(int32_t rank, uint32_t name, int64_t call);
  void activity(int32_t rank, uint32_t batch, uint8_t word);
  void done(int32_t rank, uint32_t batch);
  void leave(int32_t rank, uint32_t batch);
  void ran(int32_t rank, uint32_t batch, bool has_ended);
  void cycle(int32_t rank);
  template <typename Use>
  void for_parts(Rank& rank, uint32_t number, Use&& use);
  template <typename Use>
  void for_members(Rank& rank, const Running& running, Use&& use);

  void name_thread(uint32_t tensor, int32_t thread, std::string_view name);
  void begin(int32_t rank, uint32_t tensor, std::string_view name);
  void end(int32_t rank, const Part& part, bool last, int64_t call = 0);
  void end_all(int32_t rank, uint32_t tensor);
  void head(std::string_view phase, std::string_view name);
  void tail(int32_t rank, uint32_t pid);
  void metadata(std::string_view name, uint32_t pid, int32_t tid, std::string_view arguments);
  void give();

  const int32_t size_;
  const int64_t start_;
  const Sink sink_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, uint32_t> tensor_by_name_;
  std::unordered_map<int32_t, Rank> ranks_;
  double now_ = 0;    // time of the event that is being written, in microseconds
  std::string text_;  // text of the event that is being written
};

}  // namespace hvd::runtime
