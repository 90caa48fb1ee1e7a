#include "runtime/negotiation/speculation.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

constexpr uintptr_t kReadableAt = 16;
// The maximum of n: after n consecutive misses, 2^n - 1 announcements carry no eager data.
constexpr uint32_t kMostMisses = 6;

bool same_ids(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  return std::ranges::equal(a, b);
}

}  // namespace

void Speculation::announced(uint32_t id) {
  if (!possible_) return;
  ++open_;
  if (id != 0) fresh_.push_back(id);
}

std::span<const uint32_t> Speculation::take_fresh() {
  taken_.swap(fresh_);
  fresh_.clear();
  if (taken_.size() != open_) taken_.clear();
  std::ranges::sort(taken_);
  return taken_;
}

bool Speculation::should_speculate() {
  if (is_closed_) return false;
  if (rest_ == 0) return true;
  --rest_;
  return false;
}

void Speculation::note_outcome(bool matched) {
  misses_ = matched ? 0 : std::min(misses_ + 1, kMostMisses);
  rest_ = (uint32_t{1} << misses_) - 1;
}

ByteView Speculation::announce(std::span<const uint32_t> ids) {
  const uint64_t number = announcements_++;
  if (!ids.empty()) {
    has_sent_ = true;
    sent_ = number;
    sent_ids_.assign(ids.begin(), ids.end());
  }
  const bool matched = matches_tentative_plan(ids) && !ids.empty();
  has_kept_ = false;
  if (!matched) return {};
  has_sent_ = false;
  note_outcome(true);
  return kept_;
}

void Speculation::close() {
  announce({});
  is_closed_ = true;
}

bool Speculation::matches_tentative_plan(std::span<const uint32_t> ids) const {
  return has_kept_ && same_ids(kept_ids_, ids);
}

bool Speculation::matches(const TentativePlan& tentative) {
  if (has_sent_ && sent_ == tentative.after && same_ids(sent_ids_, tentative.ids)) {
    has_sent_ = false;
    note_outcome(true);
    return true;
  }
  if (tentative.after == announcements_) {
    keep(tentative.ids, tentative.eager_data.bytes);
    copy_kept();
  }
  return false;
}

void Speculation::plan_came(bool has_eager_data) {
  if (!possible_) return;
  has_kept_ = false;
  if (has_sent_) note_outcome(has_eager_data);
  has_sent_ = false;
}

void Speculation::sent(std::span<const uint32_t> ids) {
  has_sent_ = true;
  sent_ids_.assign(ids.begin(), ids.end());
}

bool Speculation::receive(const Announcement& announcement) {
  ++announcements_;
  if (announcement.empty()) is_closed_ = true;
  if (!has_sent_) return false;
  has_sent_ = false;
  const bool matched = !announcement.eager_data.empty() && same_ids(announcement.ids, sent_ids_);
  note_outcome(matched);
  return matched;
}

void Speculation::keep(std::span<const uint32_t> ids, ByteView eager_data) {
  has_kept_ = true;
  kept_ids_.assign(ids.begin(), ids.end());
  kept_ = eager_data;
}

void Speculation::copy_kept() {
  if (!has_kept_) return;
  kept_bytes_.assign(kept_.begin(), kept_.end());
  kept_ = kept_bytes_;
}

ByteView Speculation::aligned(ByteView eager_data) {
  if (reinterpret_cast<uintptr_t>(eager_data.data()) % kReadableAt == 0) return eager_data;
  aligned_.assign(eager_data.begin(), eager_data.end());
  return aligned_;
}

}  // namespace hvd::runtime
