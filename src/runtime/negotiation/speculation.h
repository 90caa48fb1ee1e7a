// Speculative (eager) allreduce between two ranks on two machines. Each rank sends its input data
// with the message that announces its readiness, before a plan exists. If both ranks expected the
// same batch, one message in each direction completes it. Otherwise the ranks drop the eager data
// and negotiate the batch as usual.
//
// The child sends an announcement, the root a tentative plan: "if your announcement number N carries eager data for
// the same names, this is the next plan". The two ranks know announcement N, so no further message is needed to decide
// whether the plan is valid. Until the root receives announcement N, the root makes no other plan for the set and does
// not end the set. When the set ends, the child sends an empty announcement, its last one for speculation, and the
// root stops waiting. This class only keeps the state; SpeculativeExchange sends the messages. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

class Speculation {
 public:
  // Maximum size of eager data: for more bytes, the operation's own links are faster.
  static constexpr size_t kMostBytes = 128 * 1024;

  explicit Speculation(bool possible) : possible_(possible) {}
  // Returns whether the set has two members, on two machines.
  bool possible() const { return possible_; }

  // Record that this rank has announced a name, by its id or in full (0), or that a plan has a name.
  void announced(uint32_t id);
  void planned() { open_ -= possible_ ? 1 : 0; }
  // Returns the ids announced since the last call, ascending; empty if one of these names has no id or
  // an older name waits for a plan.
  std::span<const uint32_t> take_fresh();
  // Returns whether eager data was sent, and this rank does not know yet if the peer expected the same batch.
  bool is_undecided() const { return has_sent_; }
  // Returns whether to send eager data now. After wasted sends, returns false for a number of announcements.
  bool should_speculate();

  // Returns the number of announcements that the child has sent, or the root has received.
  uint64_t announcements() const { return announcements_; }

  // Returns whether the child's empty announcement was sent or received: no eager data follows it.
  bool is_closed() const { return is_closed_; }

  // ---- the child ----
  // Records that the empty announcement is sent.
  void close();
  // Records an announcement that is sent with eager data for these ids (or without, if empty). If the
  // announcement matches a tentative plan, the plan becomes valid: returns the peer's eager data, else empty.
  ByteView announce(std::span<const uint32_t> ids);
  // Returns whether an announcement of these ids would match the tentative plan.
  bool matches_tentative_plan(std::span<const uint32_t> ids) const;
  // Returns whether announcement N of the tentative plan has already been sent and matches the
  // plan. Otherwise keeps the tentative plan if announcement N is this rank's next one.
  bool matches(const TentativePlan& tentative);
  // Records that a plan has arrived, with or without eager data, which ends the speculation.
  void plan_came(bool has_eager_data);

  // ---- the root ----
  // Records that a tentative plan of these ids is sent.
  void sent(std::span<const uint32_t> ids);
  // The ids of the last tentative plan.
  std::span<const uint32_t> sent_ids() const { return sent_ids_; }
  // Records an announcement, which ends the tentative plan. Returns whether the announcement matches the plan.
  bool receive(const Announcement& announcement);

  // Keeps the eager data of an announcement without a matching tentative plan, for the next plan.
  // The data stays in its message until it is copied.
  void keep(std::span<const uint32_t> ids, ByteView eager_data);
  void copy_kept();
  void drop_kept() { has_kept_ = false; }
  bool has_kept() const { return has_kept_; }
  std::span<const uint32_t> kept_ids() const { return kept_ids_; }
  ByteView kept() const { return kept_; }

  // Returns the bytes with the alignment that operations need: `eager_data`, or a copy that this object owns.
  ByteView aligned(ByteView eager_data);

 private:
  void note_outcome(bool matched);

  const bool possible_;
  uint64_t open_ = 0;  // names that this rank has announced and that have no plan
  std::vector<uint32_t> fresh_, taken_;
  uint64_t announcements_ = 0;  // announcements that the child has sent, or the root has received
  bool is_closed_ = false;      // see is_closed()
  bool has_sent_ = false;       // an undecided tentative plan, or an announcement with eager data
  uint64_t sent_ = 0;           // number of the announcement with eager data
  std::vector<uint32_t> sent_ids_;
  // True if eager data is kept: of a tentative plan, or at the root of an announcement.
  bool has_kept_ = false;
  std::vector<uint32_t> kept_ids_;
  ByteView kept_;
  Bytes kept_bytes_, aligned_;
  uint32_t misses_ = 0;  // consecutive misses
  uint32_t rest_ = 0;    // number of announcements to send without eager data
};

}  // namespace hvd::runtime
