// Speculative (eager) allreduce between two ranks on two machines. Each rank sends its input data
// together with the message that says it is ready, before a plan exists. Where both ranks expected
// the same batch, one message each way completes the batch. Otherwise both drop the eager data and
// negotiate the batch as usual.
//
// The child sends an announcement, the root a tentative plan: "if your announcement number N carries
// eager data for the same names, this is the next plan". Both ranks know that announcement, so both
// know without another message whether the plan holds. The root makes no other plan for the set
// until it has received that announcement, and does not end the set either. When the set ends, the child
// sends an empty announcement, its last one for speculation: the root waits for no other.
// This class only keeps the books; the runtime core sends. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

class Speculation {
 public:
  // More than this travels better by the operation's own links.
  static constexpr size_t kMostBytes = 128 * 1024;

  explicit Speculation(bool possible) : possible_(possible) {}
  // Whether the set has two members, on two machines.
  bool possible() const { return possible_; }

  // This rank has announced a name, by an id or in full (0); a plan has come for one.
  void announced(uint32_t id);
  void planned() { open_ -= possible_ ? 1 : 0; }
  // The ids announced since the last call, ascending; empty unless all of them have an id and no
  // older name waits for a plan.
  std::span<const uint32_t> take_fresh();
  // Whether eager data was sent and it is still unknown whether the peer expected the same batch.
  bool is_undecided() const { return has_sent_; }
  // Whether to send eager data now: after wasted sends it pauses for a number of chances.
  bool should_speculate();

  // How many announcements the child has sent, or the root has received.
  uint64_t announcements() const { return announcements_; }

  // Whether the child's empty announcement has left, or has come: no eager data follows it.
  bool is_closed() const { return is_closed_; }

  // ---- the child ----
  // The empty announcement leaves.
  void close();
  // Records an announcement that leaves with eager data for these ids (none: without). Returns the
  // peer's eager data when the announcement matches a tentative plan, which then holds; else empty.
  ByteView announce(std::span<const uint32_t> ids);
  // Whether an announcement of these ids would match the tentative plan.
  bool matches_tentative_plan(std::span<const uint32_t> ids) const;
  // Whether the announcement that the tentative plan refers to has left already and matches it.
  // Otherwise the tentative plan is kept as long as that announcement may still leave.
  bool matches(const TentativePlan& tentative);
  // A plan came, with or without eager data: it ends the speculation.
  void plan_came(bool has_eager_data);

  // ---- the root ----
  // A tentative plan of these ids leaves.
  void sent(std::span<const uint32_t> ids);
  // The ids of the last tentative plan.
  std::span<const uint32_t> sent_ids() const { return sent_ids_; }
  // An announcement came, which ends the tentative plan. True: it matches.
  bool receive(const Announcement& announcement);

  // Keeps the eager data of an announcement that matches no tentative plan, for the next plan. The
  // data stays in its message until copied.
  void keep(std::span<const uint32_t> ids, ByteView eager_data);
  void copy_kept();
  void drop_kept() { has_kept_ = false; }
  bool has_kept() const { return has_kept_; }
  std::span<const uint32_t> kept_ids() const { return kept_ids_; }
  ByteView kept() const { return kept_; }

  // Returns the bytes at an alignment that operations can read: `eager_data` or a copy, which this object owns.
  ByteView aligned(ByteView eager_data);

 private:
  void note_outcome(bool matched);

  const bool possible_;
  uint64_t open_ = 0;  // names that this rank has announced and no plan has come for
  std::vector<uint32_t> fresh_, taken_;
  uint64_t announcements_ = 0;  // announcements that the child has sent, or the root has received
  bool is_closed_ = false;      // see is_closed()
  bool has_sent_ = false;       // a tentative plan, or an announcement with eager data: undecided
  uint64_t sent_ = 0;           // the number of that announcement
  std::vector<uint32_t> sent_ids_;
  // Eager data is kept: with a tentative plan, or at the root with an announcement.
  bool has_kept_ = false;
  std::vector<uint32_t> kept_ids_;
  ByteView kept_;
  Bytes kept_bytes_, aligned_;
  uint32_t misses_ = 0;  // misses without a match between them
  uint32_t rest_ = 0;    // announcements that still go without eager data
};

}  // namespace hvd::runtime
