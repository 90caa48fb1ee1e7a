#include "runtime/core/service_bus.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace hvd::runtime {

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
