#include "runtime/point_to_point/message_matcher.h"

#include <algorithm>
#include <iterator>

namespace hvd::runtime {
namespace {

// With more queues than this, empty queues are removed, not kept for the next message with their tag.
constexpr size_t kMostQueues = 256;

bool fits(const Submission& receive, int32_t source) {
  return receive.message.peer == source || receive.message.peer == HVD_ANY_RANK;
}

}  // namespace

void MessageMatcher::tidy(Table::iterator found) {
  const Queues& queues = found->second;
  if (table_.size() > kMostQueues && queues.receives.empty() && queues.messages.empty()) {
    table_.erase(found);
  }
}

std::unique_ptr<ArrivedMessage> MessageMatcher::match(Submission* receive) {
  const auto found = table_.try_emplace({receive->set, receive->message.tag}).first;
  auto& messages = found->second.messages;
  const auto one = std::ranges::find_if(
      messages, [&](const auto& message) { return fits(*receive, message->source); });
  if (one == messages.end()) {
    // A receive returns to the queue if its message was withdrawn.
    auto& receives = found->second.receives;
    auto next = receives.end();
    while (next != receives.begin() && (*(next - 1))->message.order > receive->message.order)
      --next;
    receives.insert(next, receive);
    return nullptr;
  }
  std::unique_ptr<ArrivedMessage> message = std::move(*one);
  messages.erase(one);
  tidy(found);
  return message;
}

Submission* MessageMatcher::match(uint32_t set, int32_t tag, int32_t source) {
  const auto found = table_.find({set, tag});
  if (found == table_.end()) return nullptr;
  auto& receives = found->second.receives;
  const auto one = std::ranges::find_if(
      receives, [source](const Submission* receive) { return fits(*receive, source); });
  if (one == receives.end()) return nullptr;
  Submission* const receive = *one;
  receives.erase(one);
  tidy(found);
  return receive;
}

void MessageMatcher::keep(std::unique_ptr<ArrivedMessage> message) {
  table_[{message->set, message->tag}].messages.push_back(std::move(message));
}

void MessageMatcher::drop(const Submission* receive) {
  const auto found = table_.find({receive->set, receive->message.tag});
  if (found == table_.end()) return;
  std::erase(found->second.receives, receive);
  tidy(found);
}

std::unique_ptr<ArrivedMessage> MessageMatcher::take_offer(int32_t source, uint64_t id) {
  for (auto found = table_.begin(); found != table_.end(); ++found) {
    auto& messages = found->second.messages;
    const auto one = std::ranges::find_if(messages, [&](const auto& message) {
      return message->id == id && message->source == source;
    });
    if (one == messages.end()) continue;
    std::unique_ptr<ArrivedMessage> message = std::move(*one);
    messages.erase(one);
    tidy(found);
    return message;
  }
  return nullptr;
}

std::vector<std::unique_ptr<ArrivedMessage>> MessageMatcher::take_messages(uint32_t set) {
  std::vector<std::unique_ptr<ArrivedMessage>> taken;
  for (auto& [key, queues] : table_) {
    if (key.set != set) continue;
    std::ranges::move(queues.messages, std::back_inserter(taken));
    queues.messages.clear();
  }
  return taken;
}

void MessageMatcher::clear() { table_.clear(); }

}  // namespace hvd::runtime
