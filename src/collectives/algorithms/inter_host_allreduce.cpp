#include "collectives/algorithms/inter_host_allreduce.h"

#include <algorithm>

#include "base/check.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives {
namespace {

// A piece queues its next hop after this many ticks, in which other pieces start, so that this host
// has data to send while the other hosts reply.
constexpr size_t kStagger = 2;
// Further hops enter the queues while the queues have fewer transfers than this number.
constexpr size_t kAhead = 64;
// A smaller payload takes one stream.
constexpr size_t kSmallestStripe = 32 * 1024;

size_t lines(size_t size) { return (size + 63) / 64 * 64; }

}  // namespace

void InterHostAllreduce::begin(const Reduction& reduction, const InterHostConfig& config) {
  HVD_CHECK(queued_ == 0 && finished_ == added_);
  reduction_ = &reduction;
  config_ = config;
  element_ = reduction.element;
  const size_t hosts = group_.host_count();
  const size_t host = group_.host_index();
  if (scheduled_config_.algorithm != config.algorithm || scheduled_config_.count != config.count ||
      scheduled_config_.last != config.last || scheduled_config_.dtype != config.dtype ||
      scheduled_config_.pieces == 0) {
    schedule_ = make_schedule(config.algorithm, hosts, host, config.count, element_);
    last_schedule_ = make_schedule(config.algorithm, hosts, host, config.last, element_);
    scheduled_config_ = config;
  }
  accumulates_float32_ = config.part.is_float32 || (schedule_.partial && is_half(config.dtype));
  reduce_ = accumulates_float32_
                ? reduce_function(HVD_FLOAT32, static_cast<hvd_reduce_op>(config.op))
                : reduction.reduce;
  const size_t unit = accumulates_float32_ ? sizeof(float) : element_;
  float32_size_ = accumulates_float32_ ? lines(std::max(config.count, config.last) * unit) : 0;
  scratch_size_ = lines(std::max(schedule_.scratch, last_schedule_.scratch) * unit);
  // More slots than pieces in the window, so that hops of later pieces can enter the queues before earlier pieces
  // are finished.
  const size_t slots = std::min(config.window + 2, std::max<size_t>(config.pieces, 1));
  slots_.resize(slots);
  if (memory_.size() < slots * (float32_size_ + scratch_size_) + 64) {
    memory_.resize(slots * (float32_size_ + scratch_size_) + 64);
  }
  if (send_queues_.size() != hosts * config.streams) {
    send_queues_.clear();
    for (size_t i = 0; i < hosts * config.streams; ++i) {
      send_queues_.push_back({i / config.streams, i % config.streams, nullptr, {}, 0});
    }
    receive_queues_ = send_queues_;
  }
  added_ = finished_ = tick_ = next_start_ = 0;
  started_.clear();
  for (size_t piece = 0; piece < slots; ++piece) prepare(piece);
}

void InterHostAllreduce::prepare(size_t number) {
  if (number >= config_.pieces) return;
  Piece& piece = slot_of(number);
  const Schedule& schedule = schedule_of(number);
  piece.data = nullptr;
  piece.number = number;
  piece.hop = 0;
  piece.counted = false;
  piece.receives_left = 0;
  piece.all_sends_left = 0;
  piece.sends_left.assign(schedule.hops.size(), 0);
  for (size_t hop = 0; hop < schedule.hops.size(); ++hop) {
    for (const Transfer& transfer : schedule.hops[hop].sends) {
      piece.sends_left[hop] += stripes_of(transfer.part.count * unit(hop));
    }
    piece.all_sends_left += piece.sends_left[hop];
  }
}

void InterHostAllreduce::add(std::byte* data) {
  HVD_CHECK(may_add());
  Piece& piece = slot_of(added_);
  piece.data = data;
  if (accumulates_float32_ && !config_.part.is_float32) {
    to_float32(reinterpret_cast<float*>(float32_of(piece)), data, config_.dtype, count_of(added_));
  }
  ++added_;
  enter(piece);
  settle();
}

std::byte* InterHostAllreduce::float32_of(const Piece& piece) {
  auto* base = reinterpret_cast<std::byte*>(lines(reinterpret_cast<uintptr_t>(memory_.data())));
  return base + piece.number % slots_.size() * (float32_size_ + scratch_size_);
}

std::byte* InterHostAllreduce::scratch_of(const Piece& piece) {
  return float32_of(piece) + float32_size_;
}

// Returns the address of the data that a hop sends.
std::byte* InterHostAllreduce::source(const Piece& piece, size_t hop) {
  return carries_float32(hop) ? float32_of(piece) : piece.data;
}

// Returns the address where a hop stores received data.
std::byte* InterHostAllreduce::target(const Piece& piece, size_t hop) {
  return hop < schedule_of(piece.number).reducing ? scratch_of(piece) : piece.data;
}

size_t InterHostAllreduce::stripes_of(size_t size) const {
  return std::clamp<size_t>(size / kSmallestStripe, 1, config_.streams);
}

void InterHostAllreduce::queue_transfer(std::vector<TransferQueue>& queues, size_t host,
                                        StreamTransfer whole) {
  const size_t stripes = stripes_of(whole.size);
  const size_t each = lines((whole.size + stripes - 1) / stripes);
  for (size_t stripe = 0; stripe < stripes; ++stripe) {
    const size_t first = std::min(whole.size, stripe * each);
    StreamTransfer part = whole;
    part.offset += first;
    part.size = std::min(whole.size - first, each);
    queues[host * config_.streams + stripe].transfers.push_back(part);
    ++queued_;
  }
}

void InterHostAllreduce::queue_hop(size_t piece, size_t hop) {
  const Schedule& schedule = schedule_of(piece);
  const size_t bytes = unit(hop);
  for (const Transfer& transfer : schedule.hops[hop].sends) {
    queue_transfer(send_queues_, transfer.host,
                   {piece, hop, transfer.part.first * bytes, transfer.part.count * bytes});
  }
  // The parts to reduce lie one after another, in the order of the hosts.
  size_t at = 0;
  for (const Transfer& transfer : schedule.hops[hop].receives) {
    const bool reduces = hop < schedule.reducing;
    const size_t size = transfer.part.count * bytes;
    queue_transfer(receive_queues_, transfer.host,
                   {piece, hop, reduces ? at : transfer.part.first * bytes, size});
    at += size;
  }
}

// In each tick, each started piece that is due queues its next hop, the oldest piece first; then
// another piece starts. All hosts count the same ticks, independent of received data.
void InterHostAllreduce::queue_hops() {
  const size_t hops = schedule_.hops.size();
  while (queued_ < kAhead && (next_start_ < config_.pieces || !started_.empty())) {
    if (next_start_ < config_.pieces && next_start_ - finished_ >= slots_.size()) return;
    for (Started& started : started_) {
      if ((tick_ - started.tick) % kStagger != 0) continue;
      queue_hop(started.piece, started.queued++);
    }
    while (!started_.empty() && started_.front().queued == hops) started_.erase(started_.begin());
    const size_t oldest = started_.empty() ? next_start_ : started_.front().piece;
    if (next_start_ < config_.pieces && next_start_ - oldest < config_.window) {
      started_.push_back({next_start_, tick_, 1});
      queue_hop(next_start_, 0);
      ++next_start_;
    }
    ++tick_;
  }
}

bool InterHostAllreduce::send_from(TransferQueue& queue) {
  if (queue.empty()) return false;
  if (queue.peer_stream == nullptr)
    queue.peer_stream = &group_.peer_stream(queue.host, queue.stream);
  bool moved = false;
  while (!queue.empty()) {
    StreamTransfer& transfer = queue.transfers[queue.head];
    Piece& piece = slot_of(transfer.piece);
    if (transfer.piece >= added_ || piece.hop < transfer.hop) return moved;
    const size_t size = queue.peer_stream->write_some(
        {source(piece, transfer.hop) + transfer.offset + transfer.done,
         transfer.size - transfer.done});
    transfer.done += size;
    moved |= size > 0;
    if (transfer.done < transfer.size) {
      if (queue.peer_stream->ended()) waits_for_ = queue.peer_stream->peer();
      return moved;
    }
    --piece.sends_left[transfer.hop];
    --piece.all_sends_left;
    queue.pop();
    --queued_;
    enter(piece);
  }
  return moved;
}

bool InterHostAllreduce::receive_into(TransferQueue& queue) {
  if (queue.empty()) return false;
  if (queue.peer_stream == nullptr)
    queue.peer_stream = &group_.peer_stream(queue.host, queue.stream);
  bool moved = false;
  while (!queue.empty()) {
    StreamTransfer& transfer = queue.transfers[queue.head];
    Piece& piece = slot_of(transfer.piece);
    if (transfer.piece >= added_ || piece.hop != transfer.hop) return moved;
    const size_t size =
        queue.peer_stream->read_some({target(piece, transfer.hop) + transfer.offset + transfer.done,
                                      transfer.size - transfer.done});
    transfer.done += size;
    moved |= size > 0;
    if (transfer.done < transfer.size) {
      if (queue.peer_stream->ended()) waits_for_ = queue.peer_stream->peer();
      return moved;
    }
    queue.pop();
    --queued_;
    --piece.receives_left;
    enter(piece);
  }
  return moved;
}

// Ends the piece's hops, in order, up to the first hop whose data has not arrived.
void InterHostAllreduce::enter(Piece& piece) {
  const Schedule& schedule = schedule_of(piece.number);
  while (piece.hop < schedule.hops.size() && end_hop(piece)) {
  }
}

bool InterHostAllreduce::end_hop(Piece& piece) {
  const Schedule& schedule = schedule_of(piece.number);
  const size_t hop = piece.hop;
  if (!piece.counted) {
    for (const Transfer& transfer : schedule.hops[hop].receives) {
      piece.receives_left += stripes_of(transfer.part.count * unit(hop));
    }
    piece.counted = true;
  }
  if (piece.receives_left > 0) return false;
  if (hop < schedule.reducing && schedule.overwrites && piece.sends_left[hop] > 0) return false;
  if (hop < schedule.reducing) reduce(piece);
  ++piece.hop;
  piece.counted = false;
  return true;
}

void InterHostAllreduce::reduce(Piece& piece) {
  const Schedule& schedule = schedule_of(piece.number);
  const auto& transfers = schedule.hops[piece.hop].receives;
  if (transfers.empty()) return;
  const size_t bytes = unit(piece.hop);
  const Slice part = transfers.front().part;
  std::byte* own = source(piece, piece.hop) + part.first * bytes;
  std::byte* received = scratch_of(piece);
  inputs_.clear();
  for (const Transfer& transfer : transfers) {
    if (inputs_.size() == static_cast<size_t>(&transfer - transfers.data()) &&
        transfer.host > group_.host_index()) {
      inputs_.push_back(own);
    }
    inputs_.push_back(received);
    received += transfer.part.count * bytes;
  }
  if (inputs_.size() == transfers.size()) inputs_.push_back(own);
  const bool last = piece.hop == schedule.last_reducing;
  reduce_(own, inputs_.data(), inputs_.size(), part.count, reduction_->none,
          last && !accumulates_float32_ ? config_.part.after : reduction_->none);
  if (last && accumulates_float32_) {
    to_storage_type(piece.data + part.first * element_, reinterpret_cast<const float*>(own),
                    config_.dtype, part.count, config_.part.after);
  }
}

// Counts the finished pieces at the front, and gives their slots to later pieces.
void InterHostAllreduce::settle() {
  while (finished_ < added_) {
    const Piece& piece = slot_of(finished_);
    if (piece.hop < schedule_of(finished_).hops.size() || piece.all_sends_left > 0) return;
    const size_t next = finished_ + slots_.size();
    ++finished_;
    prepare(next);
  }
}

// Advances every piece as far as the streams allow. In a ring (schedule.h has the other algorithms), a
// piece of n elements on H hosts takes these hops on host h. A slice has n / H elements; numbers of
// slices and hosts are modulo H.
//
//   hop 0             send slice h - 1 to host h + 1; receive slice h - 2 from host h - 1 into the scratch memory, and
//                     reduce it into this host's slice h - 2.
//   hops 1 to H - 2   send the slice that the previous hop has reduced; receive the slice below it, and reduce it. Hop
//                     H - 2 reduces slice h, which then has the data of all hosts, and divides it for an average.
//   hop H - 1         send slice h, which is a result; receive the result of slice h - 1 directly into the piece.
//   H to 2 H - 3      send the result that the previous hop has received; receive the result of the slice below it.
//
// Each host sends and receives 2 n (H - 1) / H elements. float16 and bfloat16 are sent as float32 by the hops that
// reduce, and as 16 bits by the others.
//
// A hop waits for the previous hop of its piece, so up to `window` pieces are in flight: while one piece waits for
// its neighbour, the streams carry other pieces. queue_hops() puts the transfers of each stream into the order
//
//   piece 0 hop 0; piece 1 hop 0; piece 0 hop 1, piece 2 hop 0; piece 1 hop 1, piece 3 hop 0; piece 0 hop 2, ...
//
// which is the same on both ends of the stream. Only the first transfer of a queue moves. A send starts once the
// previous hop of its piece has ended, a receive once its piece is at that hop. A transfer of 64 KiB or more is divided
// among the streams to that host, at least 32 KiB for each. A piece is finished after its last hop and its last send;
// its slot then serves a later piece.
void InterHostAllreduce::advance() {
  waits_for_ = -1;
  bool moved = true;
  while (moved && finished_ < config_.pieces) {
    queue_hops();
    moved = false;
    for (TransferQueue& queue : send_queues_) moved |= send_from(queue);
    for (TransferQueue& queue : receive_queues_) moved |= receive_into(queue);
    settle();
  }
}

}  // namespace hvd::collectives
