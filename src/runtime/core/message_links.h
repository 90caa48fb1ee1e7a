// This rank's message links to other ranks, by the controller plugin, and its place in the combining
// tree of all ranks. Owns the opened controller. Knows no process set and decides nothing: callers act
// on a failed send. Never waits. Belongs to the thread that makes progress.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "horovod/plugin_controller.h"
#include "runtime/negotiation/combining_tree.h"
#include "runtime/plugins/opened_plugin.h"
#include "runtime/submission/set_table.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

class MessageLinks {
 public:
  MessageLinks(OpenedPlugin controller, int32_t rank, const SetMembers& all);

  int32_t rank() const { return rank_; }
  const TreePlace& tree() const { return tree_; }
  bool is_root() const { return tree_.parent < 0; }
  // The machine of each rank.
  std::span<const int32_t> machines() const { return machines_; }

  // `rest` ends the message.
  Status send(int32_t rank, ByteView message, ByteView rest = {});
  // A notice that cannot be sent is dropped: poll reports the link's failure.
  void send_notice(MessageKind kind, const Notice& notice, int32_t rank);
  void notify_children(MessageKind kind, const Notice& notice);

  using Receiver = void (*)(void* argument, int32_t from, const void* message, size_t size);
  // Hands the messages that have arrived to the receiver. *moved becomes true when anything moved.
  Status poll(Receiver receiver, void* argument, bool* moved);
  // Gets out what was sent last, and drops what arrives.
  void drain();
  // Fails every link, so that no peer waits for this rank.
  void abort(const char* cause);
  bool before_sleep();
  void after_sleep();
  // Closes the links. Only the getters above may be called afterwards.
  void close() { controller_.reset(); }

  uint64_t messages_sent() const { return messages_sent_; }

 private:
  const hvd_controller_v1& link() const { return controller_->vtable<hvd_controller_v1>(); }

  std::optional<OpenedPlugin> controller_;  // until close
  const int32_t rank_;
  const std::vector<int32_t> machines_;
  const TreePlace tree_;
  uint64_t messages_sent_ = 0;
};

}  // namespace hvd::runtime
