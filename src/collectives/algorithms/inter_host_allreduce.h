// The inter-host allreduce: reduces pieces of memory over all hosts of a group, in place. The ranks
// with equal local index, one per host, take part together. Several pieces are in flight at once,
// each at a step of its schedule. The two ends of a stream know the order of the transfers, so only
// data is sent. The progress thread polls the object; no call waits.
#pragma once

#include <vector>

#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/host_stages.h"
#include "collectives/algorithms/schedule.h"
#include "collectives/kernels/reduction.h"
#include "collectives/mesh/peer_stream.h"

namespace hvd::collectives {

class Group;

// The parameters of one operation; equal on all hosts.
struct InterHostConfig {
  Algorithm algorithm = Algorithm::kTwoShot;
  int32_t dtype = HVD_UINT8;
  int32_t op = HVD_SUM;
  size_t pieces = 0;
  size_t count = 0;   // elements of a piece
  size_t last = 0;    // elements of the last piece
  size_t window = 1;  // maximum number of pieces in flight
  size_t streams = 1;
  HostPart part;
};

class InterHostAllreduce {
 public:
  explicit InterHostAllreduce(Group& group) : group_(group) {}

  // `reduction` must outlive the operation.
  void begin(const Reduction& reduction, const InterHostConfig& config);
  // Returns the memory for this host's part of the next piece: a float32 buffer if the parts are float32, otherwise
  // `piece`. Call only while may_add().
  std::byte* part_of_next(std::byte* piece) {
    return config_.part.is_float32 ? float32_of(slot_of(added_)) : piece;
  }
  // Adds the next piece, after the caller has written this host's part to part_of_next(piece). `piece`
  // has the result when the piece is finished. Call it only while may_add().
  void add(std::byte* piece);
  bool may_add() const { return added_ < config_.pieces && added_ - finished_ < config_.window; }
  size_t added() const { return added_; }
  // Returns the number of finished pieces. Pieces finish in the order in which they were added.
  size_t finished() const { return finished_; }
  void advance();
  // Returns a rank whose stream has ended before its transfers were complete, or -1.
  int waits_for() const { return waits_for_; }

 private:
  struct Piece {
    std::byte* data = nullptr;
    size_t number = 0;
    size_t hop = 0;        // the hop that is receiving
    bool counted = false;  // receives_left is set for this hop
    size_t receives_left = 0;
    std::vector<size_t> sends_left;  // by hop
    size_t all_sends_left = 0;
  };
  // The stripe of a transfer that one stream carries.
  struct StreamTransfer {
    size_t piece;  // number of the piece
    size_t hop;
    size_t offset;  // bytes, from the start of the hop's transfer
    size_t size;
    size_t done = 0;
  };
  // The transfers of one direction of a stream: a send queue or a receive queue.
  struct TransferQueue {
    bool empty() const { return head == transfers.size(); }
    void pop() {
      if (++head < transfers.size()) return;
      transfers.clear();
      head = 0;
    }
    size_t host;
    size_t stream;
    PeerStream* peer_stream = nullptr;
    std::vector<StreamTransfer> transfers;  // pending from index `head` on
    size_t head = 0;
  };
  struct Started {
    size_t piece;
    size_t tick;
    size_t queued = 0;  // hops that have entered the queues
  };

  const Schedule& schedule_of(size_t piece) const {
    return piece + 1 < config_.pieces ? schedule_ : last_schedule_;
  }
  size_t count_of(size_t piece) const {
    return piece + 1 < config_.pieces ? config_.count : config_.last;
  }
  Piece& slot_of(size_t piece) { return slots_[piece % slots_.size()]; }
  void prepare(size_t number);
  bool carries_float32(size_t hop) const {
    return accumulates_float32_ && hop < schedule_.reducing;
  }
  size_t unit(size_t hop) const { return carries_float32(hop) ? sizeof(float) : element_; }
  std::byte* float32_of(const Piece& piece);
  std::byte* scratch_of(const Piece& piece);
  std::byte* source(const Piece& piece, size_t hop);
  std::byte* target(const Piece& piece, size_t hop);

  void queue_hops();
  void queue_hop(size_t piece, size_t hop);
  void queue_transfer(std::vector<TransferQueue>& queues, size_t host, StreamTransfer whole);
  size_t stripes_of(size_t size) const;
  bool send_from(TransferQueue& queue);
  bool receive_into(TransferQueue& queue);
  void enter(Piece& piece);
  bool end_hop(Piece& piece);
  void reduce(Piece& piece);
  void settle();

  Group& group_;
  const Reduction* reduction_ = nullptr;
  ReduceFunction reduce_ = nullptr;
  InterHostConfig config_;
  size_t element_ = 1;
  bool accumulates_float32_ = false;
  Schedule schedule_, last_schedule_;
  InterHostConfig scheduled_config_;  // the configuration of schedule_ and last_schedule_
  std::vector<Piece> slots_;
  std::vector<std::byte> memory_;
  size_t float32_size_ = 0;  // bytes per slot of memory_
  size_t scratch_size_ = 0;
  size_t added_ = 0;
  size_t finished_ = 0;
  // State of queue_hops(), which puts the hops into the queues in the same order on all hosts.
  size_t tick_ = 0;
  size_t next_start_ = 0;
  std::vector<Started> started_;
  size_t queued_ = 0;
  std::vector<TransferQueue> send_queues_, receive_queues_;  // by host and stream
  std::vector<const void*> inputs_;
  int waits_for_ = -1;
};

// Ready when this many pieces are finished.
class PiecesFinished final : public Condition {
 public:
  PiecesFinished(InterHostAllreduce& inter_host, size_t pieces)
      : inter_host_(inter_host), pieces_(pieces) {}
  bool ready() override {
    if (inter_host_.finished() < pieces_) inter_host_.advance();
    return inter_host_.finished() >= pieces_;
  }
  int waits_for() const override { return inter_host_.waits_for(); }

 private:
  InterHostAllreduce& inter_host_;
  size_t pieces_;
};

// Waits for another condition and advances the inter-host allreduce meanwhile.
class AdvancingMeanwhile final : public Condition {
 public:
  AdvancingMeanwhile(InterHostAllreduce& inter_host, Condition& condition)
      : inter_host_(inter_host), condition_(condition) {}
  bool ready() override {
    inter_host_.advance();
    return condition_.ready();
  }
  int waits_for() const override { return condition_.waits_for(); }

 private:
  InterHostAllreduce& inter_host_;
  Condition& condition_;
};

}  // namespace hvd::collectives
