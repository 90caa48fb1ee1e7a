#include "launcher/pmix/fences.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"

namespace hvd::launcher {

PmixFences::Fence PmixFences::next(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  Fence fence;
  for (size_t host = 0; host < order_.ranks.size(); ++host) {
    const bool takes_part = ranks.empty() || std::ranges::any_of(order_.ranks[host], [&](int rank) {
                              return std::binary_search(ranks.begin(), ranks.end(), rank);
                            });
    if (!takes_part) continue;
    if (host == order_.host) fence.place = fence.hosts.size();
    fence.hosts.push_back(host);
  }
  const std::string set = ranks.empty() ? "all" : to_map({ranks});
  fence.name = cat("pmix/", order_.job, "/", set, "/", counts_[set]++);
  return fence;
}

PmixFences::Fence PmixFences::of_all(std::string name) const {
  Fence fence{std::move(name), {}, order_.host};
  for (size_t host = 0; host < order_.ranks.size(); ++host) fence.hosts.push_back(host);
  return fence;
}

Result<std::string> PmixFences::run(const Fence& fence, const std::string& data,
                                    rendezvous::Store* store, Deadline deadline) const {
  if (fence.hosts.size() < 2) return data;
  if (store == nullptr) return unavailable("the job has no store");
  const rendezvous::Party party{
      static_cast<int>(fence.place), static_cast<int>(fence.hosts.size()), {}};
  HVD_ASSIGN_OR_RETURN(const std::vector<Bytes> records,
                       store->exchange(fence.name, party, as_bytes(data), deadline));
  std::string all;
  for (const Bytes& record : records) {
    all.append(reinterpret_cast<const char*>(record.data()), record.size());
  }
  return all;
}

}  // namespace hvd::launcher
