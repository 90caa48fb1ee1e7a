// Fences between the PMIx helpers of all hosts. Each helper contributes the data of its ranks, and receives the data of
// all helpers. Only one thread may call next(). Any thread may call the other functions; run() blocks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/pmix/conversation.h"
#include "rendezvous/store/store.h"

namespace hvd::launcher {

class PmixFences {
 public:
  explicit PmixFences(const PmixOrder& order) : order_(order) {}

  struct Fence {
    std::string name;
    std::vector<size_t> hosts;  // participating hosts, ascending
    size_t place = 0;           // index of this host in `hosts`
  };
  // Returns the next fence of these ranks (of all ranks if empty). All participating hosts count the fences of each set
  // of ranks in the same way.
  Fence next(std::vector<int> ranks);
  // Returns the fence of all hosts with this name. A name can be used once.
  Fence of_all(std::string name) const;

  // Returns the concatenated data of all participants. `store` may be null if only this host participates.
  Result<std::string> run(const Fence& fence, const std::string& data, rendezvous::Store* store,
                          Deadline deadline) const;

 private:
  const PmixOrder order_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace hvd::launcher
