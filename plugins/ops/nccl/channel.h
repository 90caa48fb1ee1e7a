// A communicator of NCCL and the stream of its batches. It can add two sub-communicators on the same
// stream: the members of this host, and the members with the same place on each host. Belongs to the
// thread of its process set; any thread may check it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/nccl/library.h"

namespace hvd::ops::nccl {

class Channel {
 public:
  // Waits between two questions; false when it is no use to go on. Never null.
  using Pause = std::function<bool()>;

  explicit Channel(const Api& api) : api_(api) {}
  Channel(const Channel&) = delete;

  // The device is current here and below. Waits for the other members, of `size`, as long as `pause`
  // goes on. Where the library can, the communicator does not block, so that what waits for a peer can
  // be given up.
  Status open(const abi::UniqueId& id, int index, int size, const Pause& pause);
  // The same for a communicator on this one's stream, inside a host or across hosts.
  enum SubCommunicator { kInside = 0, kAcross = 1 };
  Status add_sub_communicator(SubCommunicator sub, const abi::UniqueId& id, int index, int size,
                              const Pause& pause);
  Channel* sub_communicator(SubCommunicator which) const { return sub_communicators_[which].get(); }
  // Between calls that enqueue: group_start ... group_end, then settle.
  Status settle(const Pause& pause);
  // What NCCL has found meanwhile: what the stream has come to the end of is right only if this is.
  // Any thread.
  Status check();
  // Ends what runs: the stream comes to its end, with whatever in the outputs. Then only close.
  void abort();
  // Before the end of the object, with nothing under way but what was aborted.
  void close();

  // The sum of inputs that are first multiplied.
  Result<int> sum_times(double factor, int type);

  abi::Comm* comm() const { return comm_; }
  void* stream() const { return stream_; }
  const Api& api() const { return api_; }

 private:
  Status join(const abi::UniqueId& id, int index, int size, const Pause& pause);

  const Api& api_;
  abi::Comm* comm_ = nullptr;
  void* stream_ = nullptr;
  bool owns_stream_ = true;
  std::unique_ptr<Channel> sub_communicators_[2];
  std::mutex mutex_;
  bool is_over_ = false;                        // guarded by mutex_: comm_ is not to be asked
  int sub_communicators_open_ = 0;              // guarded by mutex_: those that may be asked
  std::map<std::pair<int, double>, int> sums_;  // by type and factor
};

}  // namespace hvd::ops::nccl
