#include "runtime/telemetry/metrics_service.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/log/log.h"
#include "base/metrics/metrics_text.h"
#include "base/result.h"
#include "base/text.h"
#include "base/wire/value_bytes.h"

namespace hvd::runtime {
namespace {

static_assert(std::is_trivially_copyable_v<Metrics> && sizeof(Metrics) % sizeof(uint64_t) == 0 &&
              std::has_unique_object_representations_v<Metrics>);
constexpr size_t kLongestHost = 256;
constexpr size_t kLongestGroup = 256;

// Time limits. A reader whose buffer is too small asks twice: two questions must take less than a second.
constexpr std::chrono::milliseconds kCollectionTime{400};
constexpr std::chrono::milliseconds kAnswerTime{450};

// Formats the metrics of a job. `values`: the metrics of the ranks that answered, ascending.
std::string text_of(const std::vector<MetricsOfRank>& values, int32_t size) {
  std::string text;
  put_family(text, "rank_up", "gauge", "Whether the rank has answered.");
  auto next = values.begin();
  for (int32_t rank = 0; rank < size; ++rank) {
    const bool is_up = next != values.end() && next->rank == rank;
    put_sample(text, "rank_up", cat("rank=\"", rank, "\""), is_up ? "1" : "0");
    if (is_up) ++next;
  }
  return text + metrics_text(values);
}

}  // namespace

void encode(const MetricsMessage& message, ByteWriter& out) {
  out.put(message.kind).put(message.number);
  put(out, message.asks);
  out.put(static_cast<uint32_t>(message.values.size()));
  for (const MetricsOfRank& value : message.values) {
    out.put(value.rank).put_text(front_of(value.host, kLongestHost));
    out.put_raw(std::as_bytes(std::span(&value.metrics, 1)));
    out.put(static_cast<uint32_t>(value.groups.size()));
    for (const GroupCalls& group : value.groups) {
      out.put_text(front_of(group.name, kLongestGroup)).put(group.completed);
    }
  }
}

Status decode(ByteView bytes, MetricsMessage* message) {
  ByteReader in(bytes);
  message->kind = in.get<MetricsMessageKind>();
  message->number = in.get<uint32_t>();
  get(in, message->asks);
  message->values.assign(in.get_count(sizeof(Metrics)), {});
  for (MetricsOfRank& value : message->values) {
    value.rank = in.get<int32_t>();
    value.host = in.get_text();
    const ByteView raw = in.get_raw(sizeof value.metrics);
    if (!raw.empty()) std::memcpy(static_cast<void*>(&value.metrics), raw.data(), raw.size());
    if (value.host.size() > kLongestHost) return invalid_argument("a host's name is too long");
    value.groups.assign(in.get_count(sizeof(uint64_t)), {});
    for (GroupCalls& group : value.groups) {
      group.name = in.get_text();
      group.completed = in.get<uint64_t>();
      if (group.name.size() > kLongestGroup) return invalid_argument("a group's name is too long");
    }
  }
  HVD_RETURN_IF_ERROR(in.finish("a message of the metrics"));
  if (message->kind < MetricsMessageKind::kAsk || message->kind > MetricsMessageKind::kResult) {
    return invalid_argument("a message of the metrics is of no kind");
  }
  return {};
}

std::string rank_labels(int32_t rank, std::string_view host) {
  return cat("rank=\"", rank, "\",host=\"", escape_label(host), "\"");
}

namespace {

// Adds up groups with equal labels in one sample, for example groups without a name.
std::string groups_text(const std::vector<MetricsOfRank>& values) {
  std::map<std::string, uint64_t> calls;  // by labels
  for (const MetricsOfRank& value : values) {
    for (const GroupCalls& group : value.groups) {
      calls[cat(rank_labels(value.rank, value.host), ",group=\"", escape_label(group.name),
                "\"")] += group.completed;
    }
  }
  std::string text;
  if (calls.empty()) return text;
  put_family(text, "group_calls_total", "counter",
             "Calls of a group that are complete: the last one has this number.");
  for (const auto& [labels, number] : calls)
    put_sample(text, "group_calls_total", labels, cat(number));
  return text;
}

}  // namespace

std::string metrics_text(const std::vector<MetricsOfRank>& values) {
  std::vector<LabelledMetrics> all;
  all.reserve(values.size());
  for (const MetricsOfRank& value : values) {
    all.push_back({rank_labels(value.rank, value.host), &value.metrics});
  }
  return hvd::metrics_text(all) + groups_text(values);
}

void MetricsService::ask_rank(const std::shared_ptr<Question>& question) {
  question->text = metrics_text({own_()});
  question->answer({});
}

void MetricsService::ask_job(std::shared_ptr<Question> question) {
  MetricsMessage message;
  message.number = next_ticket_++;
  questions_.emplace(message.number, Open{std::move(question), Clock::now() + kAnswerTime});
  set_alarm();
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
  collects_until_ = Clock::now() + kCollectionTime;
  set_alarm();
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
  if (values_.size() == static_cast<size_t>(size_)) root_reply();
}

void MetricsService::root_reply() {
  MetricsMessage reply;
  reply.kind = MetricsMessageKind::kResult;
  reply.number = collection_;
  reply.asks = std::exchange(served_, {});
  for (auto& [number, of_rank] : values_) reply.values.push_back(std::move(of_rank));
  collecting_ = false;
  set_alarm();
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
    found->second.question->text = text_of(message.values, size_);
    found->second.question->answer({});
    questions_.erase(found);
  }
  set_alarm();
}

void MetricsService::on_alarm(Clock::time_point now) {
  if (collecting_ && collects_until_ <= now) root_reply();
  for (auto open = questions_.begin(); open != questions_.end();) {
    if (open->second.until > now) {
      ++open;
      continue;
    }
    open->second.question->text = text_of({own_()}, size_);
    open->second.question->answer({});
    open = questions_.erase(open);
  }
  set_alarm();
}

void MetricsService::set_alarm() {
  alarm_ = collecting_ ? collects_until_ : Clock::time_point::max();
  for (const auto& [ticket, open] : questions_) alarm_ = std::min(alarm_, open.until);
}

void MetricsService::on_end(const Status& why) {
  for (auto& [ticket, open] : questions_) open.question->answer(why);
  questions_.clear();
  waiting_.clear();
  collecting_ = false;
  set_alarm();
}

}  // namespace hvd::runtime
