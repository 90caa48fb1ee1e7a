#include "collectives/mesh/host_links.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hvd::collectives {

HostLinks::HostLinks(std::unique_ptr<SharedRegion> region, std::vector<UniqueFd> doorbells,
                     size_t local)
    : region_(std::move(region)),
      doorbells_(std::move(doorbells)),
      local_(local),
      words_((doorbells_.size() + 63) / 64),
      mine_(region_->rank(local)),
      outgoing_(doorbells_.size()),
      incoming_(doorbells_.size()) {
  for (size_t i = 0; i < doorbells_.size(); ++i) {
    if (i != local_) everyone_[i / 64] |= uint64_t{1} << (i % 64);
  }
}

HostLinks::~HostLinks() = default;

void HostLinks::silence_doorbell() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(doorbell(), &count, sizeof count);
}

// Stores pieces of a message in the receiver's cells. Returns whether all pieces are stored.
bool HostLinks::push(size_t to, ByteView message, size_t& sent) {
  RankBlock& block = region_->rank(to);
  bool pushed = false;
  bool finished = false;
  bool starved = false;
  uint64_t position = block.message_tail.load(std::memory_order_relaxed);
  while (!finished) {
    MessageCell& cell = block.messages[position % kMessageCells];
    const uint64_t turn = cell.turn.load(std::memory_order_seq_cst);
    if (turn < position) {
      if (starved) break;
      // Check the cell again: the receiver may have freed it before message_starved was set.
      block.message_starved.store(1, std::memory_order_seq_cst);
      starved = true;
      position = block.message_tail.load(std::memory_order_relaxed);
      continue;
    }
    if (turn > position) {
      position = block.message_tail.load(std::memory_order_relaxed);
      continue;
    }
    if (!block.message_tail.compare_exchange_weak(position, position + 1,
                                                  std::memory_order_relaxed)) {
      continue;
    }
    const size_t size = std::min(message.size() - sent, kMessageBytes);
    if (size > 0) std::memcpy(cell.data, message.data() + sent, size);
    sent += size;
    finished = sent == message.size();
    cell.sender = static_cast<uint32_t>(local_);
    cell.size = static_cast<uint32_t>(size) | (finished ? kMessageLast : 0);
    cell.turn.store(position + 1, std::memory_order_seq_cst);
    pushed = true;
    ++position;
  }
  if (pushed) {
    LocalMask receiver{};
    receiver[to / 64] = uint64_t{1} << (to % 64);
    wake(receiver);
  }
  return finished;
}

void HostLinks::send(size_t to, ByteView message) {
  size_t sent = 0;
  if (outgoing_[to].empty() && push(to, message, sent)) return;
  outgoing_[to].push_back({Bytes(message.begin(), message.end()), sent});
  ++waiting_;
}

bool HostLinks::flush() {
  bool moved = false;
  for (size_t to = 0; to < outgoing_.size(); ++to) {
    auto& queue = outgoing_[to];
    while (!queue.empty()) {
      const size_t before = queue.front().sent;
      const bool finished = push(to, queue.front().message, queue.front().sent);
      moved |= finished || queue.front().sent != before;
      if (!finished) break;
      queue.pop_front();
      --waiting_;
    }
  }
  return moved;
}

bool HostLinks::has_messages() const {
  return mine_.messages[message_head_ % kMessageCells].turn.load(std::memory_order_seq_cst) ==
         message_head_ + 1;
}

bool HostLinks::poll(const Receiver& receiver) {
  bool moved = waiting_ > 0 && flush();
  // Take at most one round of the ring, so that a busy sender cannot block the caller.
  size_t taken = 0;
  for (; taken < kMessageCells && has_messages(); ++taken) {
    MessageCell& cell = mine_.messages[message_head_ % kMessageCells];
    const size_t from = std::min<size_t>(cell.sender, incoming_.size() - 1);
    const ByteView piece(cell.data, std::min<size_t>(cell.size & ~kMessageLast, kMessageBytes));
    const bool last = (cell.size & kMessageLast) != 0;
    Bytes& whole = incoming_[from];
    if (last && whole.empty()) {
      receiver(from, piece);
    } else {
      whole.insert(whole.end(), piece.begin(), piece.end());
    }
    cell.turn.store(message_head_ + kMessageCells, std::memory_order_seq_cst);
    ++message_head_;
    if (last && !whole.empty()) {
      const Bytes message = std::exchange(whole, {});
      receiver(from, message);
    }
  }
  if (taken > 0 && mine_.message_starved.load(std::memory_order_seq_cst) != 0) {
    mine_.message_starved.store(0, std::memory_order_seq_cst);
    wake(everyone_);
  }
  return moved || taken > 0;
}

void HostLinks::fall_asleep() {
  region_->header().sleepers[local_ / 64].fetch_or(uint64_t{1} << (local_ % 64),
                                                   std::memory_order_seq_cst);
  // A sender that waits for cells sets message_starved again, now that its doorbell can ring.
  if (waiting_ > 0) flush();
}

void HostLinks::wake_up() {
  auto& word = region_->header().sleepers[local_ / 64];
  const uint64_t bit = uint64_t{1} << (local_ % 64);
  if ((word.load(std::memory_order_relaxed) & bit) != 0) {
    word.fetch_and(~bit, std::memory_order_seq_cst);
  }
}

bool HostLinks::anyone_sleeps(const LocalMask& mask) const {
  for (size_t i = 0; i < words_; ++i) {
    const auto& word = region_->header().sleepers[i];
    if ((word.load(std::memory_order_seq_cst) & mask[i]) != 0) return true;
  }
  return false;
}

void HostLinks::wake(const LocalMask& mask) {
  for (size_t i = 0; i < words_; ++i) {
    auto& word = region_->header().sleepers[i];
    uint64_t sleeping = word.load(std::memory_order_seq_cst) & mask[i];
    if (sleeping == 0) continue;
    // The rank that clears the bit also wakes the sleeper, which is therefore woken once.
    sleeping &= word.fetch_and(~sleeping, std::memory_order_seq_cst);
    while (sleeping != 0) {
      const auto bit = static_cast<size_t>(std::countr_zero(sleeping));
      sleeping &= sleeping - 1;
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t put =
          ::write(doorbells_[i * 64 + bit].get(), &one, sizeof one);
    }
  }
}

void HostLinks::depart() {
  if (std::exchange(has_departed_, true)) return;
  mine_.state.store(static_cast<uint32_t>(BlockState::kClosed), std::memory_order_seq_cst);
  region_->header().left_count.fetch_add(1, std::memory_order_seq_cst);
  wake(everyone_);
}

bool HostLinks::departed(size_t local) const {
  return region_->rank(local).state.load(std::memory_order_seq_cst) ==
         static_cast<uint32_t>(BlockState::kClosed);
}

uint32_t HostLinks::left_count() const {
  return region_->header().left_count.load(std::memory_order_seq_cst);
}

Status HostLinks::failure() const {
  if (!has_failed()) return {};
  const RegionHeader& header = region_->header();
  return aborted(std::string(header.cause, ::strnlen(header.cause, sizeof header.cause)))
      .with_lost_rank(header.lost_rank);
}

Status HostLinks::fail(const Status& cause) {
  RegionHeader& header = region_->header();
  uint32_t none = 0;
  if (header.failure.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) {
    const size_t size = std::min(cause.message().size(), sizeof header.cause - 1);
    std::memcpy(header.cause, cause.message().data(), size);
    header.cause[size] = '\0';
    header.lost_rank = cause.lost_rank();
    header.failure.store(2, std::memory_order_seq_cst);
    wake(everyone_);
    return aborted(cause.message()).with_lost_rank(cause.lost_rank());
  }
  const Status first = failure();
  return first.ok() ? aborted(cause.message()).with_lost_rank(cause.lost_rank()) : first;
}

}  // namespace hvd::collectives
