// One node of a process set's combining tree. Collects the names for which this rank or its subtrees
// are ready, and finds the names for which all are ready. ProcessSetState owns the Negotiator; the
// runtime core calls it and sends the messages, on the progress thread.
//
// A reporter is this rank or a child. A reporter reports a name once for its complete subtree: by cache id, if the
// request equals the entry's request on each of its ranks, or in full (Proposal). A name is whole when each reporter
// (for operations of some members: each reporter with one of these members) has reported it or has joined. The name is
// then sent to the parent: by id if each reporter used the id, otherwise in full, with the entry's request for ids.
//
// Invariants:
// - Reports are never withdrawn, and a reporter that reports a name twice is faulty.
// - An id means the same request on all nodes. A root's plan that forgets an entry may cross
// reports of its id on their way up: forget() converts stored reports to full ones, and the cache
// keeps a forgotten entry until the announcements of all children confirm that plan.
// - A joined rank is treated as ready for every name until all ranks have joined. Names that become complete by a join
// are sent up in a fixed order: cached names by slot, then other names by text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

// A rank's place in the combining tree. The ranks of a machine report to its lowest rank, the leader. The leaders form
// a binomial tree, with the lowest rank at the root. On a machine with many ranks, some ranks each collect the reports
// of up to eight other ranks. The number of messages per rank and of rounds grows with the logarithm of the number of
// ranks.
struct TreePlace {
  int32_t parent = -1;                         // -1 at the root
  std::vector<int32_t> children;               // ascending
  std::vector<std::vector<int32_t>> subtrees;  // ranks below each child, including the child
};

// Returns the place of `rank` among `members`, ascending ranks. `machines`: the machine of each rank of the job. Pure.
TreePlace place_in_tree(int32_t rank, std::span<const int32_t> members,
                        std::span<const int32_t> machines);

// Returns the rank to which each rank reports; -1 for the root and for ranks that are not members.
std::vector<int32_t> parents_in_tree(std::span<const int32_t> members,
                                     std::span<const int32_t> machines);

class Negotiator {
 public:
  Negotiator(int32_t rank, TreePlace place, ResponseCache* cache);

  // Records that this rank is ready for a submission. Returns the cache id in the announcement, or 0 if
  // the announcement has the full request.
  uint32_t announce(const Submission& submission);
  // Records that this rank submits nothing until all ranks have joined.
  void join();
  // Takes a child's announcement. An error means that the child is faulty.
  Status receive(int32_t child, Announcement* announcement);

  // Apply parts of the root's plans: forget() the end of a cache id, all_have_joined() the join of all ranks.
  void forget(CacheEntry* entry, uint64_t plan);
  void all_have_joined();

  // Returns the names that became ready in the complete subtree. The caller clears the names after sending.
  Announcement& ready() { return ready_; }

  const TreePlace& place() const { return place_; }
  // Returns true if the incomplete names are exactly these ids, each of them announced by this rank but
  // by no child; if ready() is empty; and if no rank of the subtree has joined.
  bool waits_for_others_with(std::span<const uint32_t> ids) const;
  // Returns the ranks of the subtree that may not be ready for a name, for the report of a stall.
  // For a missing child, returns all ranks of its subtree.
  std::vector<int32_t> missing(std::string_view name) const;

 private:
  // A name with incomplete reports. Reporter 0 is this rank, reporter i + 1 is child i.
  struct Partial {
    Proposal proposal;
    std::vector<uint32_t> reporters;
  };
  struct Reporter {
    size_t ranks = 1;    // ranks in this subtree
    size_t joined = 0;   // ranks in this subtree that have joined
    uint64_t plans = 0;  // applied plans at the reporter's latest announcement
    bool has_joined() const { return joined == ranks; }
  };
  Status report_id(uint32_t reporter, uint32_t id);
  Status report_full(uint32_t reporter, Proposal&& proposal);
  Status report_joined(uint32_t reporter, std::span<const int32_t> ranks);
  void received_plans(uint32_t reporter, uint64_t plans);
  // Returns whether every reporter has reported the name or has joined.
  bool is_whole(std::span<const uint32_t> by_id, std::span<const uint32_t> in_full) const;
  bool is_whole(const CacheEntry& entry) const;
  bool is_whole(const Partial& partial) const;
  bool has_one_of(uint32_t reporter, std::span<const int32_t> ranks) const;
  void complete(CacheEntry* entry);
  void complete(const std::string& text);
  void complete_what_is_whole();
  Proposal expand(const CacheEntry& entry, uint32_t reporter) const;
  Status reporter_of(int32_t child, uint32_t* reporter) const;

  const int32_t rank_;
  const TreePlace place_;
  std::vector<Reporter> reporters_;
  size_t joined_reporters_ = 0;
  ResponseCache* const cache_;
  std::unordered_map<std::string, Partial> partial_;
  size_t open_ = 0;  // names that some, but not all, reporters have reported
  Announcement ready_;
};

}  // namespace hvd::runtime
