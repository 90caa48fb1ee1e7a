// Runs the sends and receives of this rank: matches messages with receives, and moves the bytes.
// Needs no negotiation: each message concerns only its two ranks. RuntimeCore owns and calls PointToPoint,
// sends its messages over the message links, and fails the job on an error. Lives on the progress
// thread; never waits. See ../point_to_point/README.md for the protocol.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collectives/mesh/mesh.h"
#include "runtime/core/group_runner.h"
#include "runtime/core/message_links.h"
#include "runtime/core/pending_submissions.h"
#include "runtime/core/shutdown.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/point_to_point/message_matcher.h"
#include "runtime/point_to_point/peer_link.h"
#include "runtime/telemetry/trace_recorder.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

class PointToPoint {
 public:
  // Objects that must outlive the PointToPoint.
  struct Parts {
    MessageLinks* links;
    PendingSubmissions* submissions;
    Shutdown* shutdown;
    const SetTable* sets;
    CompletionSink* sink;
    Instruments* instruments;
    GroupRunner* groups;
  };
  explicit PointToPoint(const Parts& parts);
  // Sets the mesh links for large data between ranks. Without them, large messages are sent in
  // pieces over the message links.
  void set_mesh(collectives::SharedMesh mesh) { mesh_ = std::move(mesh); }

  // Call this at the end of the shutdown protocol. From then on only messages and calls of groups
  // need the links, and other ranks may still send this rank its first message.
  void stay_open();
  // Returns whether this rank has exchanged messages and may exchange more. Any thread.
  bool is_in_use() const { return in_use_.load(std::memory_order_acquire); }
  // Returns the reason why new sends and receives are refused, or ok. Any thread.
  Status refusal() const;
  // True after end(), once all messages of this rank have arrived, and after a failure. Any thread.
  const std::atomic<bool>& ended() const { return ended_; }

  Status start(Submission* submission);
  Status receive(int32_t from, ByteView message);
  // Moves bytes of the transfers in flight. Sets *moved if any byte moved.
  Status advance(bool* moved);
  // Returns whether every later arrival makes a watched descriptor readable. Prepares the links for sleep.
  bool may_sleep();

  // Returns the next time limit, at which the caller must call run_alarms(); max if no limit is set.
  Clock::time_point alarm() const { return alarm_; }
  Status run_alarms(Clock::time_point now);

  // Fails the submissions that wait for a rank that has left, and the transfers to or from it.
  Status check_peers();
  // Fails the unmatched sends and receives of a removed process set.
  Status remove_set(uint32_t serial, const Status& why);
  // Sends other ranks the notices about this rank's groups.
  Status notify(std::span<const GroupEnd> ends);
  // Call this when this rank leaves. Fails unmatched submissions, sends other ranks the notices about its
  // groups, and ensures that all messages of this rank arrive. Further calls do nothing.
  Status end(std::span<const GroupEnd> ends);
  // Forgets all submissions, because the job has failed. The caller completes the submissions.
  void fail(const Status& why);
  // Closes the data links. Call it before the message links are closed, when no transfer is in flight.
  void close();

 private:
  PeerLink& peer(int32_t rank);
  Status send(int32_t rank, const PeerMessage& message, ByteView rest = {});
  Status start_send(Submission* send);
  Status start_receive(Submission* receive);
  Status take(Submission* receive, std::unique_ptr<ArrivedMessage> message);
  Status arrive(int32_t from, const PeerMessage& message);
  Status accept(Submission* receive, int32_t from, uint64_t id, ByteView place);
  Status copied(int32_t from, uint64_t id);
  Status copy(PeerLink& link, bool* moved);
  Status accepted(int32_t from, uint64_t id);
  Status refused(const PeerMessage& message);
  Status withdrawn(int32_t from, const PeerMessage& message);
  Status take_back(int32_t from, uint64_t id);
  Status take_piece(int32_t from, const PeerMessage& message);
  Status taken(int32_t from, const PeerMessage& message);
  Status open_ring(int32_t from, const PeerMessage& message);
  Status count_consumed(int32_t from, size_t bytes);
  Status write(PeerLink& link, bool* moved);
  Status read(PeerLink& link, bool* moved);
  Status send_pieces(PeerLink& link, bool* moved);
  Status answer_flush(PeerLink& link);
  Status flush(bool* moved);
  bool is_small(const Submission& send);
  bool has_left(int32_t rank) const;
  void watch(const Submission& receive);
  bool is_hopeless(const Submission& submission) const;
  Status withdraw(Submission* submission, const Status& why);
  void fail_transfers(PeerLink& link);
  template <typename Selects>
  Status withdraw_if(Selects&& selects, const Status& why);
  void activate(PeerLink& link);
  void wait_for_peer(Submission* submission);
  void begin_transfer(Submission* submission, int32_t other);
  void complete(Submission* submission, Status status);
  void deliver(Submission* receive, int32_t from, ByteView data);
  Status mismatch(const Submission& receive, int32_t from, int32_t dtype, uint64_t count) const;

  const Parts parts_;
  const int32_t rank_;
  collectives::SharedMesh mesh_;  // may be null
  MessageMatcher matcher_;
  std::vector<std::unique_ptr<PeerLink>> peers_;  // by rank; null: no exchange yet
  std::vector<PeerLink*> active_;                 // links with transfers in flight
  // A send that the receiver has not yet accepted.
  struct Offer {
    Submission* send;
    Status withdrawn;  // reason of a withdrawal; the send's error when the receiver has replied
  };
  std::unordered_map<uint64_t, Offer> offered_;  // by id
  uint64_t next_id_ = 1;
  uint64_t next_order_ = 1;
  Clock::time_point alarm_ = Clock::time_point::max();
  bool is_ending_ = false;
  bool has_failed_ = false;
  Bytes buffer_;  // one small message with its header

  // Shared with other threads.
  std::atomic<bool> in_use_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> refuses_{false};
  mutable Mutex mutex_;
  Status refusal_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
