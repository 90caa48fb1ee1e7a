#include "runtime/telemetry/metrics_service.h"

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/text.h"
#include "runtime/telemetry/metrics_text.h"

namespace hvd::runtime {

void MetricsService::ask_rank(const std::shared_ptr<Question>& question) {
  const MetricsOfRank own = own_();
  question->text = metrics_text({&own, 1});
  question->answer({});
}

void MetricsService::ask_job(std::shared_ptr<Question> question) {
  MetricsMessage message;
  message.number = next_ticket_++;
  questions_.emplace(message.number, std::move(question));
  send(links_.to_root, message);
}

void MetricsService::send(const std::function<void(ByteView)>& where,
                          const MetricsMessage& message) {
  ByteWriter out;
  encode(message, out);
  where(out.view());
}

void MetricsService::receive(int32_t from, ByteView bytes) {
  MetricsMessage message;
  if (Status status = decode(bytes, &message); !status.ok()) {
    log::warning(status.with_context(cat("from rank ", from)).message());
    return;
  }
  const bool down = message.kind >= MetricsMessageKind::kCollect;
  if (down ? from != 0 : rank_ != 0) return;
  if (message.kind == MetricsMessageKind::kAsk) {
    root_ask({from, message.number});
  } else if (message.kind == MetricsMessageKind::kValues) {
    root_values(std::move(message));
  } else if (message.kind == MetricsMessageKind::kCollect) {
    message.kind = MetricsMessageKind::kValues;
    message.values = {own_()};
    send(links_.to_root, message);
  } else {
    result(message);
  }
}

void MetricsService::root_ask(const Ask& ask) {
  waiting_.push_back(ask);
  if (!collecting_) root_collect();
}

void MetricsService::root_collect() {
  collecting_ = true;
  values_.clear();
  served_ = std::exchange(waiting_, {});
  MetricsMessage message;
  message.kind = MetricsMessageKind::kCollect;
  message.number = ++collection_;
  send(links_.to_all, message);
}

void MetricsService::root_values(MetricsMessage&& message) {
  if (!collecting_ || message.number != collection_ || message.values.size() != 1) return;
  MetricsOfRank& value = message.values.front();
  if (value.rank < 0 || value.rank >= size_) return;
  const int32_t rank = value.rank;
  values_.insert_or_assign(rank, std::move(value));
  if (values_.size() != static_cast<size_t>(size_)) return;
  MetricsMessage reply;
  reply.kind = MetricsMessageKind::kResult;
  reply.number = collection_;
  reply.asks = std::exchange(served_, {});
  for (auto& [number, of_rank] : values_) reply.values.push_back(std::move(of_rank));
  collecting_ = false;
  const bool only_here = std::all_of(reply.asks.begin(), reply.asks.end(),
                                     [this](const Ask& ask) { return ask.rank == rank_; });
  if (only_here)
    result(reply);
  else
    send(links_.to_all, reply);
  if (!waiting_.empty() && !collecting_) root_collect();
}

void MetricsService::result(const MetricsMessage& message) {
  for (const Ask& ask : message.asks) {
    const auto found = ask.rank == rank_ ? questions_.find(ask.ticket) : questions_.end();
    if (found == questions_.end()) continue;
    found->second->text = metrics_text(message.values);
    found->second->answer({});
    questions_.erase(found);
  }
}

void MetricsService::on_end(const Status& why) {
  for (auto& [ticket, question] : questions_) question->answer(why);
  questions_.clear();
  waiting_.clear();
}

}  // namespace hvd::runtime
