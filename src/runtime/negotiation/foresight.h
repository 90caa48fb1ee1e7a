// What two ranks on two machines expect of each other. Each sends what it brings to a batch along
// with its word that it is ready, without waiting for the other's; where both expected the same, one
// message each way is all that the batch takes, and where not, what was brought is dropped and the
// batch goes the usual way.
//
// The child's word is its announcement, the root's an offer: "if your announcement number N brings
// something to the same names, that is the next plan". Both know that announcement, so both know
// without another message whether the plan has come about. Until the root has heard it, it plans
// nothing else in the set. This is the bookkeeping alone; the engine sends. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

class Foresight {
 public:
  // More than this travels better by the operation's own links.
  static constexpr size_t kMostBytes = 128 * 1024;

  explicit Foresight(bool possible) : possible_(possible) {}
  // Whether the set has two members, on two machines.
  bool possible() const { return possible_; }

  // This rank has announced a name, by an id or in full (0); a plan has come for one.
  void announced(uint32_t id);
  void planned() { open_ -= possible_ ? 1 : 0; }
  // What was announced since the last call, ascending: when all of that has an id and nothing older
  // waits for a plan, or else nothing.
  std::span<const uint32_t> take_fresh();
  // Whether something was sent along of which it is not known whether the other expected the same.
  bool is_undecided() const { return has_sent_; }
  // Whether it is worth to send something along: not for a while after that was in vain.
  bool is_hopeful();

  // How many announcements the child has sent, or the root has heard.
  uint64_t announcements() const { return announcements_; }

  // ---- the child ----
  // An announcement leaves that brings something to these ids, or nothing. What the other one brings
  // when that meets an offer: then the plan has come about. Empty otherwise.
  ByteView announce(std::span<const uint32_t> ids);
  // Whether the next announcement, if it is of these, meets an offer.
  bool has_offer_of(std::span<const uint32_t> ids) const;
  // Whether the announcement that the offer means is one that left already, and meets it. Otherwise
  // the offer is kept for as long as that announcement may still come.
  bool meets(const Offer& offer);
  // A plan came: whatever was expected of it is over.
  void plan_came(bool brings);

  // ---- the root ----
  void offer(std::span<const uint32_t> ids);
  // Of the last offer.
  std::span<const uint32_t> offered() const { return sent_ids_; }
  // An announcement came. True: it meets the offer, which is over in any case.
  bool hear(const Announcement& announcement);

  // Of an announcement that meets no offer: what it brings is there for the plan that comes next,
  // within its message until copied.
  void keep(std::span<const uint32_t> ids, ByteView brought);
  void copy_kept();
  void drop_kept() { has_kept_ = false; }
  bool has_kept() const { return has_kept_; }
  std::span<const uint32_t> kept_ids() const { return kept_ids_; }
  ByteView kept() const { return kept_; }

  // The same bytes, where an operation can read them.
  ByteView aligned(ByteView brought);

 private:
  void went(bool well);

  const bool possible_;
  uint64_t open_ = 0;  // names that this rank has announced and no plan has come for
  std::vector<uint32_t> fresh_, taken_;
  uint64_t announcements_ = 0;  // of the child: sent, or heard at the root
  bool has_sent_ = false;       // an offer, or an announcement that brings something: not decided
  uint64_t sent_ = 0;           // the number of that announcement
  std::vector<uint32_t> sent_ids_;
  bool has_kept_ = false;  // of an offer, or at the root of an announcement
  std::vector<uint32_t> kept_ids_;
  ByteView kept_;
  Bytes kept_bytes_, aligned_;
  uint32_t misses_ = 0;  // one after another
  uint32_t rest_ = 0;    // chances to let pass
};

}  // namespace hvd::runtime
