// The timeline of a job. Any rank may start and stop the timeline for all ranks. Each rank records its events
// (trace_recorder); the root collects and writes them (trace_writer), on the root's clock. A rank
// without events sends nothing. Class Observation owns the Timeline. Callers hold the progress lock.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/telemetry/clock_estimate.h"
#include "runtime/telemetry/question.h"
#include "runtime/telemetry/service.h"
#include "runtime/telemetry/service_links.h"
#include "runtime/telemetry/timeline_message.h"
#include "runtime/telemetry/trace_recorder.h"
#include "runtime/telemetry/trace_writer.h"

namespace hvd::runtime {

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
