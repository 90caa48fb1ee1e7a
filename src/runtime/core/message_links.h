// Message links from this rank to other ranks, provided by the controller plugin, and this rank's
// place in the combining tree of all ranks. Owns the opened controller plugin. The runtime core,
// the service bus, the shutdown protocol and speculative allreduce send through these links. A call never
// waits. A failed send returns an error, and the caller handles it. Lives on the progress thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "horovod/plugin_controller.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/plugins/plugin_host.h"
#include "runtime/submission/set_table.h"
#include "runtime/telemetry/service.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

class MessageLinks {
 public:
  MessageLinks(OpenedPlugin controller, int32_t rank, const SetMembers& all);

  int32_t rank() const { return rank_; }
  const TreePlace& tree() const { return tree_; }
  // Returns the parent of each rank in the tree; -1 for the root.
  std::vector<int32_t> parents() const;
  bool is_root() const { return tree_.parent < 0; }
  // Returns the index of each rank's machine.
  std::span<const int32_t> machines() const { return machines_; }

  // Sends `message` followed by `rest` as one message.
  Status send(int32_t rank, ByteView message, ByteView rest = {});
  // Sends a notice. Ignores an error, since poll() reports the link's failure.
  void send_notice(MessageKind kind, const Notice& notice, int32_t rank);
  void notify_children(MessageKind kind, const Notice& notice);

  using Receiver = void (*)(void* argument, int32_t from, const void* message, size_t size);
  // Sends and receives as much as the links allow without waiting. Calls `receiver` for each complete message. Sets
  // *moved if any byte moved.
  Status poll(Receiver receiver, void* argument, bool* moved);
  // Returns the rank whose loss made the controller fail, or -1.
  int32_t lost_rank() const;
  // Flushes the last messages of this rank, and drops incoming messages.
  void drain();
  // Fails every link, so that no peer waits for this rank.
  void abort(const Status& cause);
  bool before_sleep();
  void after_sleep();
  // Closes the links. Afterwards only rank(), tree(), parents(), is_root(), machines() and
  // messages_sent() may be called.
  void close() { controller_.reset(); }

  uint64_t messages_sent() const { return messages_sent_; }

 private:
  const hvd_controller_v1& link() const { return controller_->vtable<hvd_controller_v1>(); }

  std::optional<OpenedPlugin> controller_;  // unset after close()
  const int32_t rank_;
  const std::vector<int32_t> machines_;
  const TreePlace tree_;
  uint64_t messages_sent_ = 0;
};

// Carries the messages of this rank's services (service.h) along the combining tree of all ranks, and runs their
// alarms. Does not own the services. The caller fails the job on an error. Lives on the progress thread.
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
  // Takes a service's message from a neighbour: forwards it in the tree, delivers it to this rank's service, or both.
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
