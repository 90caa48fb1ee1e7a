// One node of the combining tree: collects what this rank and the subtrees below it are ready
// with, and says when a name is ready in all of them. Monotone: a report is never taken back, and
// nothing is said while nothing has become ready. Sends nothing itself. Belongs to the thread that
// makes progress.
#pragma once

#include <string>
#include <unordered_map>

#include "base/status.h"
#include "runtime/combining_tree.h"
#include "runtime/message.h"
#include "runtime/response_cache.h"

namespace hvd::runtime {

class Negotiator {
 public:
  Negotiator(int32_t rank, TreePlace place, ResponseCache* cache);

  // This rank is ready with a submission.
  void announce(const Submission& submission);
  // What a child announced. An error: the child is broken.
  Status receive(int32_t child, Announcement* announcement);

  // What became ready in the whole subtree and was not taken yet; the taker clears it.
  Announcement& ready() { return ready_; }

  const TreePlace& place() const { return place_; }
  // The ranks below that are not known to be ready with a name, such as for a start-up that
  // never ends. Of a child with a subtree, all of it.
  std::vector<int32_t> missing(std::string_view name) const;

 private:
  // Reporters: 0 is this rank, i + 1 the i-th child.
  struct Partial {
    Proposal proposal;
    std::vector<uint32_t> reporters;
  };
  Status report_id(uint32_t reporter, uint32_t id);
  Status report_full(uint32_t reporter, Proposal&& proposal);
  void complete(CacheEntry* entry);
  Proposal expand(const CacheEntry& entry, uint32_t reporter) const;
  Status reporter_of(int32_t child, uint32_t* reporter) const;

  const int32_t rank_;
  const TreePlace place_;
  const size_t reporters_;
  ResponseCache* const cache_;
  std::unordered_map<std::string, Partial> partial_;
  Announcement ready_;
};

}  // namespace hvd::runtime
