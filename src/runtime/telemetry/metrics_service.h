// Answers a user's request for the metrics of this rank or of all ranks. For all ranks, the root asks
// every rank, the helper threads answer, and the root sends the result to all. The result lacks ranks that do not
// answer in time, and has this rank alone if the root does not. Observation owns it.
// Used with the progress lock held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/telemetry/metrics_message.h"
#include "runtime/telemetry/service.h"
#include "runtime/telemetry/service_links.h"

namespace hvd::runtime {

// The labels of the samples of a rank.
std::string rank_labels(int32_t rank, std::string_view host);
// As text; in ascending order.
std::string metrics_text(const std::vector<MetricsOfRank>& values);

class MetricsService final : public Service {
 public:
  // own: what this rank has counted until now.
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

  // Used by the root only: one collection at a time.
  uint32_t collection_ = 0;
  bool collecting_ = false;
  Clock::time_point collects_until_{};
  std::vector<Ask> served_;   // by this collection
  std::vector<Ask> waiting_;  // for the next
  std::map<int32_t, MetricsOfRank> values_;
};

}  // namespace hvd::runtime
