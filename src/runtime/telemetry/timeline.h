// The timeline of a job. Any rank may start and stop the timeline for all ranks. Each rank records its events
// (trace_recorder); the root collects and writes them (trace_writer), on the root's clock. A rank
// without events sends nothing. Class Observation owns the Timeline. Callers hold the progress lock.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/telemetry/service.h"
#include "runtime/telemetry/trace_recorder.h"
#include "runtime/telemetry/trace_writer.h"

namespace hvd::runtime {

// Messages between the timelines of the ranks, as bytes. Timeline sends the messages over the
// service bus. decode() checks the size, the kind and the length of the text; TraceFormat checks
// the events.
//
//   rank -> root  start    a rank requests a timeline: a path on the root's host, with or without cycle marks
//                 stop     a rank requests the end of the timeline
//                 ping     the time on the rank's clock
//                 events   the rank's events since its last message
//                 flushed  the rank has sent all events of this timeline
//   root -> all   started  each rank must record events from now on; or the error
//                 stopping each rank must send its remaining events
//                 stopped  the file is complete; lists the ranks that asked
//                 pong     the time on the root's clock, for the ranks that sent a ping
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

// Estimates the offset between the monotonic clocks of the root and of this rank, by round trips: the
// shorter a round trip, the smaller the error. The error bound of an estimate grows with time, because
// the clocks drift. Timeline owns the estimate. Does no I/O.
class ClockEstimate {
 public:
  // On the same machine both ranks read one clock, unless a round trip disproves it.
  explicit ClockEstimate(bool same_machine) : same_machine_(same_machine) {}

  // Adds a round trip: a ping left at `sent`, and its pong arrived at `back` (this rank's clock); the ping
  // arrived at `there`, and the pong left at `answered` (the root's clock). In nanoseconds.
  void add(int64_t sent, int64_t there, int64_t answered, int64_t back) {
    // Computed as double, since the root's times are untrusted and a difference may overflow.
    const double outward = static_cast<double>(there) - static_cast<double>(sent);
    const double homeward = static_cast<double>(answered) - static_cast<double>(back);
    const double round = outward - homeward;
    if (!(round >= 0) || round > kWorst || outward > kFarthest || outward < -kFarthest) return;
    const auto wrong = static_cast<int64_t>(round / 2) + 1;
    if (known_ && wrong > error(back)) return;
    offset_ = static_cast<int64_t>((outward + homeward) / 2);
    error_ = wrong;
    at_ = back;
    known_ = true;
    if (same_machine_ && offset_ <= wrong && offset_ >= -wrong) offset_ = error_ = 0;
  }

  bool known() const { return known_; }
  int64_t offset() const { return offset_; }
  // Returns the error bound of offset() at a time of this rank's clock.
  int64_t error(int64_t now) const {
    if (!known_) return std::numeric_limits<int64_t>::max();
    if (same_machine_ && offset_ == 0) return error_;
    const int64_t age = now > at_ ? now - at_ : 0;
    return error_ + age / kDrift;
  }

 private:
  static constexpr int64_t kDrift = 10'000;  // clocks drift by at most one part in this number
  static constexpr double kWorst = 60e9;     // longest useful round trip
  static constexpr double kFarthest = 4e18;  // limit of an offset, against overflow

  const bool same_machine_;
  bool known_ = false;
  int64_t offset_ = 0;
  int64_t error_ = 0;
  int64_t at_ = 0;
};

struct TimelineOptions {
  int32_t rank = 0;
  int32_t size = 1;
  bool on_roots_machine = true;
  std::string host;
};

constexpr char kStartedByProgram[] = "DYNAMIC";  // stands for a path

// Returns a separate path for each generation of a job, so that no generation overwrites an earlier file:
// "trace.json" becomes "trace.generation-2.json".
std::string timeline_path(const std::string& path, int32_t generation);

class Timeline final : public Service {
 public:
  Timeline(const TimelineOptions& options, TraceRecorder* recorder, ServiceLinks links);

  // Start or stop the timeline. start() answers the question when this rank records, stop() when the file is complete.
  void start(const std::string& path, bool mark_cycles, std::shared_ptr<Question> question);
  void stop(std::shared_ptr<Question> question);
  bool is_on() const { return recorder_->is_on(); }

  void receive(int32_t from, ByteView message) override;
  Clock::time_point alarm() const override;
  void on_alarm(Clock::time_point now) override;
  void on_end(const Status& why) override;
  // Waits for the file. Call it after on_end.
  void close() { root_.writer.reset(); }

 private:
  // State of the root only.
  struct Root {
    std::unique_ptr<TraceWriter> writer;
    std::string path;
    bool stopping = false;
    std::vector<Ask> stoppers;
    int32_t flushed = 0;
    std::map<int32_t, std::string> hosts;
    std::vector<TimelineMessage::Pong> pongs;
    Clock::time_point pong_at = Clock::time_point::max();
  };

  bool is_root() const { return options_.rank == 0; }
  void ask(TimelineMessage message, std::shared_ptr<Question> question);
  void answer(const std::vector<Ask>& asks, const Status& status);
  void send_up(const TimelineMessage& message);
  void send_down(const TimelineMessage& message);
  void flush();
  void ping();

  void root_start(int32_t from, const TimelineMessage& message);
  void root_stop(int32_t from, const TimelineMessage& message);
  void root_events(int32_t from, TimelineMessage&& message);
  void root_flushed(uint32_t run);
  void root_written();
  void root_pong();

  void started(const TimelineMessage& message);
  void stopping(const TimelineMessage& message);
  void pong(const TimelineMessage& message);

  const TimelineOptions options_;
  TraceRecorder* const recorder_;
  const ServiceLinks links_;
  ClockEstimate clock_;
  uint32_t run_ = 0;
  int exchanges_ = 0;  // round trips to the root in this run
  Clock::time_point next_ping_ = Clock::time_point::max();
  uint32_t next_ticket_ = 1;
  std::unordered_map<uint32_t, std::shared_ptr<Question>> questions_;
  Root root_;
  std::vector<TraceSlot> taken_;  // kept to reuse the memory
};

}  // namespace hvd::runtime
