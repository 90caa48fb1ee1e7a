// The services' part of a runtime core: their messages on the tree's links, and their alarms.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "runtime/core/runtime_core.h"

namespace hvd::runtime {

void RuntimeCore::set_service(ServiceId id, Service* service) {
  services_[static_cast<size_t>(id)] = service;
}

void RuntimeCore::to_root(ServiceId id, ByteView message) {
  if (departed_.load(std::memory_order_relaxed)) return;
  if (is_root()) {
    if (Service* service = services_[static_cast<size_t>(id)]) {
      service->receive(options_.rank, message);
    }
    return;
  }
  ByteWriter out;
  encode(MessageKind::kToRoot, {static_cast<uint8_t>(id), options_.rank, message}, out);
  if (Status status = send(tree().parent, out.view()); !status.ok()) {
    fail_with(status, -1);
  }
}

void RuntimeCore::to_all(ServiceId id, ByteView message) {
  HVD_CHECK(is_root());
  if (departed_.load(std::memory_order_relaxed)) return;
  ByteWriter out;
  encode(MessageKind::kToAll, {static_cast<uint8_t>(id), options_.rank, message}, out);
  for (const int32_t child : tree().children) {
    if (Status status = send(child, out.view()); !status.ok()) {
      fail_with(status, -1);
      return;
    }
  }
  if (Service* service = services_[static_cast<size_t>(id)]) {
    service->receive(options_.rank, message);
  }
}

Status RuntimeCore::hand_on(MessageKind kind, int32_t from, ByteView message) {
  ServiceMessage said;
  HVD_RETURN_IF_ERROR(decode(message, &said));
  if (said.service >= kServices) {
    return invalid_argument(cat("a message for service ", said.service, ", which nobody is"));
  }
  const TreePlace& place = tree();
  if (kind == MessageKind::kToAll) {
    if (from != place.parent) {
      return invalid_argument("a message to all from a rank that is not above this one");
    }
    for (const int32_t child : place.children) HVD_RETURN_IF_ERROR(send(child, message));
  } else if (!is_root()) {
    return send(place.parent, message);
  }
  if (Service* service = services_[said.service]) service->receive(said.rank, said.content);
  return {};
}

Clock::time_point RuntimeCore::alarm() const {
  Clock::time_point first = Clock::time_point::max();
  for (const Service* service : services_) {
    if (service != nullptr) first = std::min(first, service->alarm());
  }
  return first;
}

void RuntimeCore::end_services() {
  const Status why = refusal();
  for (Service* service : services_) {
    if (service != nullptr) service->on_end(why);
  }
}

bool RuntimeCore::run_alarms() {
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

}  // namespace hvd::runtime
