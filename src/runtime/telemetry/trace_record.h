// Records of a rank for a running timeline: slots of 16 bytes in the order of time, in the form in
// which they travel to the root. A record is a slot, or a slot and the bytes that follow it. Values
// only; readers trust none of them.
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
  kAgreed = 4,     // all ranks have, and it will run
  kRefused = 5,    // all ranks have, and it will not: they disagree
  kBatch = 6,      // batch `name` of operation `detail` and element type `dtype` starts
  kMember = 7,    // `name` is in the batch that was started last; `time`: its call in a group, or 0
  kActivity = 8,  // batch `name` now does `detail`; 0: nothing that has a name
  kDone = 9,      // batch `name` is complete
  kCycle = 10,    // the submissions of a batching window were announced
};

struct TraceSlot {
  int64_t time = 0;  // nanoseconds of the rank's monotone clock
  uint32_t name = 0;
  TraceKind kind{};
  uint8_t detail = 0;
  uint8_t dtype = 0;
  uint8_t unused = 0;
};
static_assert(sizeof(TraceSlot) == 16);

// A name with what its events say of it.
struct TraceName {
  std::string text;
  int32_t process_set = 0;
  int32_t op = HVD_ALLREDUCE;
  std::vector<TensorSpec> tensors;
};
constexpr size_t kLongestTraceName = 512;

void encode(const TraceName& name, ByteWriter& out);
Status decode(ByteView bytes, TraceName* name);

// Slots that the bytes behind a kName or kWord take.
constexpr size_t slots_of(size_t bytes) {
  return (bytes + sizeof(TraceSlot) - 1) / sizeof(TraceSlot);
}

}  // namespace hvd::runtime
