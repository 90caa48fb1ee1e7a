// A communicator of NCCL with the stream that its work goes on. Belongs to the thread of its process
// set.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "ops/nccl/api.h"

namespace hvd::ops::nccl {

class Channel {
 public:
  // Waits between two questions; false when it is no use to go on. Never null.
  using Pause = std::function<bool()>;

  explicit Channel(const Api& api) : api_(api) {}
  // The device is current here and below.
  ~Channel();
  Channel(const Channel&) = delete;

  // Waits for the other members, of `size`, as long as `pause` goes on. Where the library can, the
  // communicator does not block, so that what waits for a peer can be given up.
  Status open(const abi::UniqueId& id, int index, int size, const Pause& pause);
  // Between calls that enqueue: group_start ... group_end, then settle.
  Status settle(const Pause& pause);
  // What NCCL has found meanwhile.
  Status check() const;
  // Ends what runs; the stream comes to its end. Nothing else is called after it.
  void abort();

  // The sum of inputs that are first multiplied.
  Result<int> sum_times(double factor, int type);

  abi::Comm* comm() const { return comm_; }
  void* stream() const { return stream_; }
  const Api& api() const { return api_; }

 private:
  const Api& api_;
  abi::Comm* comm_ = nullptr;
  void* stream_ = nullptr;
  bool aborted_ = false;
  std::map<std::pair<int, double>, int> sums_;  // by type and factor
};

}  // namespace hvd::ops::nccl
