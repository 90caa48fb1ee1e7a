// Message links from this rank to other ranks, provided by the controller plugin, and this rank's
// place in the combining tree of all ranks. Owns the opened controller plugin. The runtime core,
// the service bus, the shutdown protocol and speculative allreduce send through these links. A call never
// waits. A failed send returns an error, and the caller handles it. Lives on the progress thread.
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
  // Calls `receiver` for each message that has arrived. Sets *moved if any byte was sent or received.
  Status poll(Receiver receiver, void* argument, bool* moved);
  // Returns the rank whose loss the controller has reported as its failure, or -1.
  int32_t lost_rank() const;
  // Flushes the last messages of this rank, and drops incoming messages.
  void drain();
  // Fails every link, so that no peer waits for this rank.
  void abort(const Status& cause);
  bool before_sleep();
  void after_sleep();
  // Closes the links. Afterwards only the getters above may be called.
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

}  // namespace hvd::runtime
