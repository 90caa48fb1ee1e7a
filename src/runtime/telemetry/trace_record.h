// Records of a rank for a running timeline: slots of 16 bytes in the order of time, as they are sent to
// the root. A record is a slot, or a slot and the bytes that follow it. Values only; readers must
// check the values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

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

// A name, and its parameters for the trace.
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

}  // namespace hvd::runtime
