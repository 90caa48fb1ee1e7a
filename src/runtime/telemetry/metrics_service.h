// Answers a user's request for the metrics of this rank or of all ranks. For all ranks, the root asks
// every rank, the helper threads answer, and the root sends the result to all. Observation owns it.
// Used with the progress lock held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/telemetry/metrics_message.h"
#include "runtime/telemetry/service.h"
#include "runtime/telemetry/service_links.h"

namespace hvd::runtime {

class MetricsService final : public Service {
 public:
  // own: what this rank has counted until now.
  MetricsService(int32_t rank, int32_t size, std::function<MetricsOfRank()> own, ServiceLinks links)
      : rank_(rank), size_(size), own_(std::move(own)), links_(std::move(links)) {}

  void ask_rank(const std::shared_ptr<Question>& question);
  void ask_job(std::shared_ptr<Question> question);

  void receive(int32_t from, ByteView message) override;
  void on_end(const Status& why) override;

 private:
  void root_ask(const Ask& ask);
  void root_collect();
  void root_values(MetricsMessage&& message);
  void result(const MetricsMessage& message);
  void send(const std::function<void(ByteView)>& where, const MetricsMessage& message);

  const int32_t rank_;
  const int32_t size_;
  const std::function<MetricsOfRank()> own_;
  const ServiceLinks links_;
  uint32_t next_ticket_ = 1;
  std::unordered_map<uint32_t, std::shared_ptr<Question>> questions_;

  // Used by the root only: one collection at a time.
  uint32_t collection_ = 0;
  bool collecting_ = false;
  std::vector<Ask> served_;   // by this collection
  std::vector<Ask> waiting_;  // for the next
  std::map<int32_t, MetricsOfRank> values_;
};

}  // namespace hvd::runtime
