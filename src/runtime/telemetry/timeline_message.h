// Messages between the timelines of the ranks, as bytes. Timeline sends the messages over the
// service bus. Decoding checks everything.
//
//   rank -> root  start    a rank requests a timeline: a path on the root's host, with or without cycle marks
//                 stop     a rank requests the end of the timeline
//                 ping     the time on the rank's clock
//                 events   the rank's events since its last message
//                 flushed  the rank has sent all events of this timeline
//   root -> all   started  each rank must record events from now on; or the error
//                 stopping each rank must send its remaining events
//                 stopped  the file is complete; has the ranks that asked
//                 pong     the time on the root's clock, for the ranks that sent a ping
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/telemetry/service.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

enum class TimelineMessageKind : uint8_t {
  kStart = 1,
  kStop = 2,
  kPing = 3,
  kEvents = 4,
  kFlushed = 5,
  kStarted = 6,
  kStopping = 7,
  kStopped = 8,
  kPong = 9,
};

// The fields of all kinds. The comment of a field names the kinds that use it. Each message has all fields, since
// only `events` messages are frequent.
struct TimelineMessage {
  struct Pong {
    int32_t rank = 0;
    int64_t sent = 0;   // sending time, by the rank's clock
    int64_t there = 0;  // arrival time, by the root's clock
    static auto fields(auto& pong) { return std::tie(pong.rank, pong.sent, pong.there); }
  };
  TimelineMessageKind kind = TimelineMessageKind::kStart;
  uint32_t run = 0;          // number of the timeline
  uint32_t ticket = 0;       // number of the question: start, stop
  bool mark_cycles = false;  // start, started
  int64_t time = 0;          // the sender's clock: ping, pong
  int64_t offset = 0;        // TraceBatch::offset: events
  int64_t error = 0;
  uint64_t dropped = 0;
  std::string text;       // start: path; ping: host; started, stopped: error
  std::vector<Ask> asks;  // started, stopped
  std::vector<Pong> pongs;
  std::vector<TraceSlot> slots;  // events
};
constexpr size_t kLongestTimelineText = 4096;

void encode(const TimelineMessage& message, ByteWriter& out);
Status decode(ByteView bytes, TimelineMessage* message);

}  // namespace hvd::runtime
