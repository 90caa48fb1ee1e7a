// A process set as one of its members sees it.
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

struct ProcessSet {
  int32_t id = 0;
  std::vector<int32_t> members;  // ascending ranks of the job
  uint32_t incarnation = 0;      // sets with this id and these members that existed before

  int32_t size() const { return static_cast<int32_t>(members.size()); }
  // Of a rank among the members.
  int32_t index_of(int32_t rank) const {
    return static_cast<int32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  // The same on all members, and of no other set of the job.
  std::string name(std::string_view prefix) const {
    std::string text = cat(prefix, "/", id, "/", incarnation);
    for (const int32_t member : members) text += cat(".", member);
    return text;
  }
};

// The same set may come again: every member counts how often.
class Incarnations {
 public:
  ProcessSet make(int32_t id, std::vector<int32_t> members) {
    const uint32_t incarnation = seen_[{id, members}]++;
    return {id, std::move(members), incarnation};
  }

 private:
  std::map<std::pair<int32_t, std::vector<int32_t>>, uint32_t> seen_;
};

}  // namespace hvd::ops
