// Carries the messages of this rank's services (timeline, stall checks, metrics, autotuning) along the
// combining tree of all ranks, and runs their alarms. Does not own the services. Only the runtime
// core calls the bus, and fails the job on an error. Lives on the progress thread.
#pragma once

#include <array>

#include "runtime/core/message_links.h"
#include "runtime/telemetry/service.h"

namespace hvd::runtime {

class ServiceBus {
 public:
  // The links must outlive the bus.
  explicit ServiceBus(MessageLinks* links) : links_(links) {}

  // Delivers later messages and alarms to this service.
  void set(ServiceId id, Service* service) { services_[static_cast<size_t>(id)] = service; }
  // Sends a message from this rank's service to the root's service.
  Status to_root(ServiceId id, ByteView message);
  // Sends a message from the root's service to the service of every rank, including the root.
  Status to_all(ServiceId id, ByteView message);
  // Takes a service's message from a neighbour, and forwards it in the tree or delivers it to the service.
  Status receive(MessageKind kind, int32_t from, ByteView message);

  // Returns the earliest alarm of a service, at which the caller must call run_alarms(); max without an alarm.
  Clock::time_point alarm() const;
  // Runs the due alarms. Returns true if any alarm was due.
  bool run_alarms();
  // Ends all services, because the job is over for this rank.
  void end(const Status& why);

 private:
  void hand_in(size_t service, int32_t from, ByteView content) {
    if (services_[service] != nullptr) services_[service]->receive(from, content);
  }

  MessageLinks* const links_;
  std::array<Service*, kServices> services_{};
};

}  // namespace hvd::runtime
