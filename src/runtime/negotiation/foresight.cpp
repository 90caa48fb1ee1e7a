#include "runtime/negotiation/foresight.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

constexpr uintptr_t kReadableAt = 16;
// After n misses in a row 2^n - 1 chances pass unused; n at most:
constexpr uint32_t kMostMisses = 6;

bool same_ids(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  return std::ranges::equal(a, b);
}

}  // namespace

void Foresight::announced(uint32_t id) {
  if (!possible_) return;
  ++open_;
  if (id != 0) fresh_.push_back(id);
}

std::span<const uint32_t> Foresight::take_fresh() {
  taken_.swap(fresh_);
  fresh_.clear();
  if (taken_.size() != open_) taken_.clear();
  std::ranges::sort(taken_);
  return taken_;
}

bool Foresight::is_hopeful() {
  if (rest_ == 0) return true;
  --rest_;
  return false;
}

void Foresight::went(bool well) {
  misses_ = well ? 0 : std::min(misses_ + 1, kMostMisses);
  rest_ = (uint32_t{1} << misses_) - 1;
}

ByteView Foresight::announce(std::span<const uint32_t> ids) {
  const uint64_t number = announcements_++;
  if (!ids.empty()) {
    has_sent_ = true;
    sent_ = number;
    sent_ids_.assign(ids.begin(), ids.end());
  }
  const bool met = has_offer_of(ids) && !ids.empty();
  has_kept_ = false;
  if (!met) return {};
  has_sent_ = false;
  went(true);
  return kept_;
}

bool Foresight::has_offer_of(std::span<const uint32_t> ids) const {
  return has_kept_ && same_ids(kept_ids_, ids);
}

bool Foresight::meets(const Offer& offer) {
  if (has_sent_ && sent_ == offer.after && same_ids(sent_ids_, offer.ids)) {
    has_sent_ = false;
    went(true);
    return true;
  }
  if (offer.after == announcements_) {
    keep(offer.ids, offer.brought.bytes);
    copy_kept();
  }
  return false;
}

void Foresight::plan_came(bool brings) {
  if (!possible_) return;
  has_kept_ = false;
  if (has_sent_) went(brings);
  has_sent_ = false;
}

void Foresight::offer(std::span<const uint32_t> ids) {
  has_sent_ = true;
  sent_ids_.assign(ids.begin(), ids.end());
}

bool Foresight::hear(const Announcement& announcement) {
  ++announcements_;
  if (!has_sent_) return false;
  has_sent_ = false;
  const bool met = !announcement.brought.empty() && same_ids(announcement.ids, sent_ids_);
  went(met);
  return met;
}

void Foresight::keep(std::span<const uint32_t> ids, ByteView brought) {
  has_kept_ = true;
  kept_ids_.assign(ids.begin(), ids.end());
  kept_ = brought;
}

void Foresight::copy_kept() {
  if (!has_kept_) return;
  kept_bytes_.assign(kept_.begin(), kept_.end());
  kept_ = kept_bytes_;
}

ByteView Foresight::aligned(ByteView brought) {
  if (reinterpret_cast<uintptr_t>(brought.data()) % kReadableAt == 0) return brought;
  aligned_.assign(brought.begin(), brought.end());
  return aligned_;
}

}  // namespace hvd::runtime
