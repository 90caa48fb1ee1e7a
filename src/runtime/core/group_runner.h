// Runs collectives of groups, without names and negotiation. The n-th call of a group is one operation on all its
// members, which compare their calls before moving data. Each group has its own sequence, shared memory and streams;
// groups run concurrently. RuntimeCore owns the GroupRunner. Lives on the progress thread; never waits.
// See docs/process-sets.md.
//
//   start(call) ---> calls: the first call runs, later calls wait
//                      | begin(): its batch, and the flow of run_checked()
//                      v
//   advance() ------ flow: compares all records -- equal: ---> data moves ---> finish(): complete, begin the next
//                                                        '- different: the call fails, and the group continues
//
// A member that leaves sends the number of its complete calls (GroupEnd): the other members complete these calls, and
// their later calls fail. A member that dies sends nothing: check_members() fails the calls of its groups when the job
// ends.
//
// Invariants: call n of a member runs only with call n of the other members, also after a call that
// failed because calls differed. A failed group stays failed (`failure`). `ends_` keeps a notice that
// arrives before this rank creates the group. Links of a destroyed group stay open until all
// members have left: a member that still waits would take the end of a stream for a lost rank.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms/checked_call.h"
#include "collectives/mesh/mesh.h"
#include "runtime/core/shutdown.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/submission/submission.h"
#include "runtime/telemetry/metrics_service.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

// Announces that a rank leaves a group after it has completed `calls` calls.
struct GroupEnd {
  int32_t rank;  // the leaving rank, or the receiver in a list of ends to send
  uint64_t key;  // key of the group, equal on all members
  uint64_t calls;
  bool is_destroyed;  // the rank has destroyed the group, and may continue without it
};

class GroupRunner {
 public:
  // Objects that must outlive the GroupRunner.
  struct Parts {
    Shutdown* shutdown;
    CompletionSink* sink;
    Instruments* instruments;
  };
  explicit GroupRunner(const Parts& parts);
  ~GroupRunner();
  // Sets the links of the built-in controller. Without these links, create() fails.
  void set_mesh(collectives::SharedMesh mesh) { mesh_ = std::move(mesh); }

  bool is_in_use() const { return in_use_.load(std::memory_order_acquire); }

  // Creates a group. All members must create groups in the same order. `ranks` is ascending and contains this rank.
  Result<std::shared_ptr<const GroupMembers>> create(std::string name, std::vector<int32_t> ranks);
  // Fails the incomplete calls. Returns the notices for the other members.
  Result<std::vector<GroupEnd>> destroy(int32_t id);

  void start(Submission* call);
  // Records that a member has left the group.
  void member_left(const GroupEnd& end);
  // Fails the calls of groups that a member has left without a notice.
  void check_members();
  // Advances the running calls. Sets *moved if a call made progress.
  void advance(bool* moved);
  bool may_sleep();
  // Fails the incomplete calls, because this rank leaves. Returns the notices for the other members.
  std::vector<GroupEnd> end(const Status& why);
  // Forgets all calls, because the job has failed. The caller completes the submissions.
  void fail(const Status& why);
  // Returns the number of complete calls of each group, in the order of creation.
  std::vector<GroupCalls> calls() const;
  // Closes the links of all groups. Requires that no transfer is in flight.
  void close();

 private:
  struct Group;
  struct Destroyed {
    std::shared_ptr<const GroupMembers> members;
    std::unique_ptr<collectives::Group> links;
  };
  bool has_left(int32_t rank) const;
  void check_members(Group& group);
  void begin(Group& group);
  std::vector<int64_t> counts_of(const Group& group, const Submission& call) const;
  void finish(Group& group);
  void note_wait(const Group& group, const Submission& call);
  void end_trace(Group& group);
  Status difference(const Group& group) const;
  void fail_calls(Group& group, const Status& why);
  void check_ends(Group& group);
  void add_end(const Group& group, bool is_destroyed, std::vector<GroupEnd>& ends) const;
  void close_if_ended(uint64_t key);

  const Parts parts_;
  collectives::SharedMesh mesh_;  // may be null
  std::map<int32_t, std::unique_ptr<Group>> groups_;
  std::map<std::vector<int32_t>, uint64_t> made_;  // the number of groups of these ranks so far
  // Notices of other ranks, for groups that this rank has or will create later.
  std::vector<GroupEnd> ends_;
  // Groups that this rank has destroyed, by key, until all members have left them (see the invariants).
  std::map<uint64_t, Destroyed> destroyed_;
  int32_t next_id_ = 1;
  std::atomic<bool> in_use_{false};
};

}  // namespace hvd::runtime
