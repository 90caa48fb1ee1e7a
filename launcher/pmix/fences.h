// Fences between the PMIx helpers of all hosts. Each helper contributes the data that its ranks have
// put, and gets the data of all. One thread may call `next`. Any thread may call the others; `run` blocks.
#pragma once

#include <map>
#include <memory>
#include <optional>
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
    std::vector<size_t> hosts;  // hosts that take part, ascending
    size_t place = 0;           // index of this host in `hosts`
  };
  // The next one of these ranks (of all, when there are none). Every host that takes part counts
  // the fences of each set alike.
  Fence next(std::vector<int> ranks);
  // The one of all hosts with this name, for one use.
  Fence of_all(std::string name) const;

  // The data of all participants, one after another. `store` may be null when this host is alone.
  Result<std::string> run(const Fence& fence, const std::string& data, rendezvous::Store* store,
                          Deadline deadline) const;

 private:
  const PmixOrder order_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace hvd::launcher
