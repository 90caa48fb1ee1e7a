// A process set as a value for backends: its id, its members, and a name that is unique in the job.
// Backend makes one for each communicator. Immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace hvd::ops {

struct ProcessSetDescriptor {
  int32_t id = 0;
  std::vector<int32_t> members;  // ascending ranks of the job
  uint32_t incarnation = 0;      // number of earlier sets with this id and these members

  int32_t size() const { return static_cast<int32_t>(members.size()); }
  // Returns the index of a rank among the members.
  int32_t index_of(int32_t rank) const {
    return static_cast<int32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  // Returns a name that is equal on all members, and unique among the sets of the job.
  std::string name(std::string_view prefix) const {
    std::string text = cat(prefix, "/", id, "/", incarnation);
    for (const int32_t member : members) text += cat(".", member);
    return text;
  }
};

// Counts the incarnations of sets, since a job may remove a set and add it again. All members count equally.
class Incarnations {
 public:
  ProcessSetDescriptor make(int32_t id, std::vector<int32_t> members) {
    const uint32_t incarnation = seen_[{id, members}]++;
    return {id, std::move(members), incarnation};
  }

 private:
  std::map<std::pair<int32_t, std::vector<int32_t>>, uint32_t> seen_;
};

}  // namespace hvd::ops
