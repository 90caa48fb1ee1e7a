// The services of one rank: their messages on the combining tree of all ranks, and their alarms. Owns
// no service; never fails the job: the runtime core acts on an error. Belongs to the thread that makes
// progress.
#pragma once

#include <array>

#include "runtime/core/message_links.h"
#include "runtime/telemetry/service.h"

namespace hvd::runtime {

class ServiceBus {
 public:
  // The links outlive the bus.
  explicit ServiceBus(MessageLinks* links) : links_(links) {}

  // From now on messages and alarms reach this service.
  void set(ServiceId id, Service* service) { services_[static_cast<size_t>(id)] = service; }
  // From this rank's service to the root's.
  Status to_root(ServiceId id, ByteView message);
  // From the root's service to the service of every rank, its own too.
  Status to_all(ServiceId id, ByteView message);
  // A message of a service came from a neighbour: forwards it in the tree, or hands it to the service.
  Status receive(MessageKind kind, int32_t from, ByteView message);

  // When the first of the services wants run_alarms to be called; max: never.
  Clock::time_point alarm() const;
  // True when any service had an alarm.
  bool run_alarms();
  // The job is over for this rank.
  void end(const Status& why);

 private:
  void hand_in(size_t service, int32_t from, ByteView content) {
    if (services_[service] != nullptr) services_[service]->receive(from, content);
  }

  MessageLinks* const links_;
  std::array<Service*, kServices> services_{};
};

}  // namespace hvd::runtime
