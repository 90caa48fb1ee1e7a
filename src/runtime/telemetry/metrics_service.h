// Answers a user's request for the metrics of this rank or of all ranks. For all ranks, the root asks every
// rank, the helper threads answer, and the root sends the result to all ranks. The result lacks ranks that do
// not answer in time. If the root does not answer, the result has only this rank. Class Observation owns the service.
// Callers hold the progress lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/metrics/metrics.h"
#include "base/status.h"
#include "runtime/telemetry/service.h"

namespace hvd::runtime {

// The number of complete calls of a group (docs/process-sets.md).
struct GroupCalls {
  std::string name;
  uint64_t completed;
};

struct MetricsOfRank {
  int32_t rank = 0;
  std::string host;
  Metrics metrics;
  std::vector<GroupCalls> groups = {};
};

// Messages between ranks for a request for the metrics of all ranks, as bytes. MetricsService sends
// the messages over the service bus. decode() checks the size, the kind and the lengths of names.
//
//   rank -> root  ask      a rank requests the metrics of all ranks
//                 values   a rank's metrics
//   root -> all   collect  requests the metrics of each rank
//                 result   the metrics of the ranks that answered in time, and the ranks that asked
enum class MetricsMessageKind : uint8_t { kAsk = 1, kValues = 2, kCollect = 3, kResult = 4 };

struct MetricsMessage {
  MetricsMessageKind kind = MetricsMessageKind::kAsk;
  uint32_t number = 0;  // ask: number of the question; else: number of the collection
  std::vector<Ask> asks;
  std::vector<MetricsOfRank> values;
};

void encode(const MetricsMessage& message, ByteWriter& out);
Status decode(ByteView bytes, MetricsMessage* message);

std::string rank_labels(int32_t rank, std::string_view host);
// Formats the metrics of ranks, which are ascending, as text.
std::string metrics_text(const std::vector<MetricsOfRank>& values);

class MetricsService final : public Service {
 public:
  // `own`: returns the current metrics of this rank.
  MetricsService(int32_t rank, int32_t size, std::function<MetricsOfRank()> own, ServiceLinks links)
      : rank_(rank), size_(size), own_(std::move(own)), links_(std::move(links)) {}

  void ask_rank(const std::shared_ptr<Question>& question);
  void ask_job(std::shared_ptr<Question> question);

  Clock::time_point alarm() const override { return alarm_; }
  void on_alarm(Clock::time_point now) override;
  void receive(int32_t from, ByteView message) override;
  void on_end(const Status& why) override;

 private:
  void root_ask(const Ask& ask);
  void root_collect();
  void root_values(MetricsMessage&& message);
  void root_reply();
  void set_alarm();
  void result(const MetricsMessage& message);
  void send(const std::function<void(ByteView)>& where, const MetricsMessage& message);

  const int32_t rank_;
  const int32_t size_;
  const std::function<MetricsOfRank()> own_;
  const ServiceLinks links_;
  uint32_t next_ticket_ = 1;
  struct Open {
    std::shared_ptr<Question> question;
    Clock::time_point until;
  };
  std::map<uint32_t, Open> questions_;
  Clock::time_point alarm_ = Clock::time_point::max();

  // Only the root uses these members: one collection at a time.
  uint32_t collection_ = 0;
  bool collecting_ = false;
  Clock::time_point collects_until_{};
  std::vector<Ask> served_;   // questions that this collection answers
  std::vector<Ask> waiting_;  // questions for the next collection
  std::map<int32_t, MetricsOfRank> values_;
};

}  // namespace hvd::runtime
