#include "runtime/core/message_links.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "base/log/log.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "runtime/plugins/backend_selection.h"

namespace hvd::runtime {
namespace {

// Maximum number of polls in which a failing rank flushes its last messages.
constexpr int kLastWords = 64;

std::vector<int32_t> machines_of(const OpenedPlugin& controller, size_t ranks) {
  const int32_t* machines = controller.vtable<hvd_controller_v1>().hosts(controller.context());
  return {machines, machines + ranks};
}

}  // namespace

MessageLinks::MessageLinks(OpenedPlugin controller, int32_t rank, const SetMembers& all)
    : controller_(std::move(controller)),
      rank_(rank),
      machines_(machines_of(*controller_, all.ranks.size())),
      tree_(place_in_tree(rank, all.ranks, machines_)) {}

std::vector<int32_t> MessageLinks::parents() const {
  std::vector<int32_t> all(machines_.size());
  std::iota(all.begin(), all.end(), 0);
  return parents_in_tree(all, machines_);
}

Status MessageLinks::send(int32_t rank, ByteView message, ByteView rest) {
  void* const context = controller_->context();
  int code = HVD_OK;
  if (rest.empty()) {
    code = link().send(context, rank, message.data(), message.size());
  } else if (auto* const send_parts = field_of(link(), &hvd_controller_v1::send_parts)) {
    code = send_parts(context, rank, message.data(), message.size(), rest.data(), rest.size());
  } else {
    return send(rank, ByteWriter().put_raw(message).put_raw(rest).view());
  }
  ++messages_sent_;
  if (code == HVD_OK) return {};
  return aborted(cat("rank ", rank_, " cannot send to rank ", rank));
}

void MessageLinks::send_notice(MessageKind kind, const Notice& notice, int32_t rank) {
  ByteWriter out;
  encode(kind, notice, out);
  if (Status status = send(rank, out.view()); !status.ok()) log::debug(status.message());
}

void MessageLinks::notify_children(MessageKind kind, const Notice& notice) {
  for (const int32_t child : tree_.children) send_notice(kind, notice, child);
}

Status MessageLinks::poll(Receiver receiver, void* argument, bool* moved) {
  int32_t progressed = 0;
  char error[1024] = "";
  const int code =
      link().poll(controller_->context(), receiver, argument, &progressed, error, sizeof error);
  if (progressed != 0) *moved = true;
  if (code == HVD_OK) return {};
  const Status failed = aborted(error[0] != '\0' ? error : "the link to a peer failed");
  return failed.with_lost_rank(lost_rank());
}

int32_t MessageLinks::lost_rank() const { return lost_rank_of(*controller_); }

void MessageLinks::drain() {
  int32_t progressed = 1;
  for (int i = 0; i < kLastWords && progressed != 0; ++i) {
    progressed = 0;
    char ignored[256];
    link().poll(
        controller_->context(), [](void*, int32_t, const void*, size_t) {}, nullptr, &progressed,
        ignored, sizeof ignored);
  }
}

void MessageLinks::abort(const Status& cause) { abort_links(*controller_, cause); }

bool MessageLinks::before_sleep() { return link().before_sleep(controller_->context()) == 1; }

void MessageLinks::after_sleep() { link().after_sleep(controller_->context()); }

Status ServiceBus::to_root(ServiceId id, ByteView message) {
  if (links_->is_root()) {
    hand_in(static_cast<size_t>(id), links_->rank(), message);
    return {};
  }
  ByteWriter out;
  encode(MessageKind::kToRoot, {static_cast<uint8_t>(id), links_->rank(), message}, out);
  return links_->send(links_->tree().parent, out.view());
}

Status ServiceBus::to_all(ServiceId id, ByteView message) {
  HVD_CHECK(links_->is_root());
  ByteWriter out;
  encode(MessageKind::kToAll, {static_cast<uint8_t>(id), links_->rank(), message}, out);
  for (const int32_t child : links_->tree().children) {
    HVD_RETURN_IF_ERROR(links_->send(child, out.view()));
  }
  hand_in(static_cast<size_t>(id), links_->rank(), message);
  return {};
}

Status ServiceBus::receive(MessageKind kind, int32_t from, ByteView message) {
  ServiceMessage message_in;
  HVD_RETURN_IF_ERROR(decode(message, &message_in));
  if (message_in.service >= kServices) {
    return invalid_argument(cat("a message for service ", message_in.service, ", which nobody is"));
  }
  const TreePlace& place = links_->tree();
  if (kind == MessageKind::kToAll) {
    if (from != place.parent) {
      return invalid_argument("a message to all from a rank that is not above this one");
    }
    for (const int32_t child : place.children) {
      HVD_RETURN_IF_ERROR(links_->send(child, message));
    }
  } else if (!links_->is_root()) {
    return links_->send(place.parent, message);
  }
  hand_in(message_in.service, message_in.rank, message_in.content);
  return {};
}

Clock::time_point ServiceBus::alarm() const {
  Clock::time_point first = Clock::time_point::max();
  for (const Service* service : services_) {
    if (service != nullptr) first = std::min(first, service->alarm());
  }
  return first;
}

bool ServiceBus::run_alarms() {
  bool rang = false;
  Clock::time_point now{};
  for (Service* service : services_) {
    if (service == nullptr || service->alarm() == Clock::time_point::max()) continue;
    if (now == Clock::time_point{}) now = Clock::now();
    if (service->alarm() > now) continue;
    service->on_alarm(now);
    rang = true;
  }
  return rang;
}

void ServiceBus::end(const Status& why) {
  for (Service* service : services_) {
    if (service != nullptr) service->on_end(why);
  }
}

}  // namespace hvd::runtime
