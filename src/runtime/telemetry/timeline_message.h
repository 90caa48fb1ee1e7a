// Messages between the timelines of the ranks, as bytes. Decoding trusts nothing.
//
//   up    start    a rank wants a timeline: a path at the root, cycle marks or not
//         stop     a rank stops the timeline
//         ping     a rank's clock, to be answered
//         events   what a rank has noted since the last
//         flushed  there is no more of this run
//   down  started  all note from now on; or why not
//         stopping all send what they have
//         stopped  the file is complete; who had asked
//         pong     the root's clock, for all who pinged a moment ago
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/telemetry/question.h"
#include "runtime/telemetry/trace_record.h"

namespace hvd::runtime {

enum class TimelineSays : uint8_t {
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

// Each kind uses what it needs of this, and sends all of it: these are few, but for the events.
struct TimelineMessage {
  struct Pong {
    int32_t rank = 0;
    int64_t sent = 0;   // the rank's clock
    int64_t there = 0;  // the root's, when it arrived
  };
  TimelineSays says = TimelineSays::kStart;
  uint32_t run = 0;          // number of the timeline
  uint32_t ticket = 0;       // number that the asker chose: start, stop
  bool mark_cycles = false;  // start, started
  int64_t time = 0;          // the sender's clock: ping, pong
  int64_t offset = 0;        // events, as in TraceBatch
  int64_t error = 0;
  uint64_t dropped = 0;
  std::string text;       // start: path; ping: host; started, stopped: what went wrong
  std::vector<Ask> asks;  // started, stopped
  std::vector<Pong> pongs;
  std::vector<TraceSlot> slots;  // events
};
constexpr size_t kLongestTimelineText = 4096;

void encode(const TimelineMessage& message, ByteWriter& out);
Status decode(ByteView bytes, TimelineMessage* message);

}  // namespace hvd::runtime
