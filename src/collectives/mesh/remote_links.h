// One rank's TCP links to ranks on other hosts, opened on first use: one control stream per peer, and peer streams per
// group for data. Dials all addresses of a peer at once and keeps the first that proves its identity. When two ranks
// dial each other, the connection of the lower rank stays. Mesh owns RemoteLinks. One caller at a time; waits only in
// abort(), briefly.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/mesh/handshake.h"
#include "collectives/mesh/peer_acceptor.h"
#include "collectives/mesh/peer_stream.h"

namespace hvd::collectives {

// Time limits, in seconds.
struct LinkTimes {
  double dial = 30;   // a link opens within this time after its first use
  double proof = 10;  // an accepted connection proves its rank within this time
  double link = 60;   // a link fails when its peer does not answer for this time
};

class RemoteLinks final {
 public:
  // Listens on these addresses, which this rank publishes for its peers.
  static Result<std::unique_ptr<RemoteLinks>> open(net::EventLoop& loop,
                                                   const Credentials& credentials, int32_t rank,
                                                   const std::vector<Bytes>& addresses,
                                                   net::PortRange ports);

  uint16_t port() const { return acceptor_->port(); }
  // Sets the records of all ranks and the leader of each rank, and begins to accept connections.
  Status start(const std::vector<PeerRecord>& records, const std::vector<int32_t>& leaders,
               const LinkTimes& times);
  // Closes the listeners: a job on one host needs no connection from other hosts.
  void close_listener() { acceptor_->close(); }

  // Expects a connection from `rank`, and dials `rank` if none arrives in time: possibly only this rank
  // can connect, even if only the other rank has messages to send.
  void expect(int32_t rank);

  // Sends two parts that arrive as one message.
  Status send(int32_t rank, ByteView first, ByteView second);
  using Receiver = std::function<void(int32_t from, ByteView message)>;
  // Call this after the loop has dispatched. Returns true if any bytes moved. A failure ends all
  // links.
  bool poll(const Receiver* receiver);
  // Returns whether any link, dial or pending peer may get events.
  bool in_use() const {
    return !controls_.empty() || !dials_.empty() || acceptor_->has_pending() || !expected_.empty();
  }
  // Returns whether received messages wait for a receiver.
  bool has_messages() const { return !kept_.empty(); }
  // Returns whether messages wait to be written.
  bool has_output() const;
  const Status& failure() const { return failure_; }
  // Returns whether the rank has sent its goodbye.
  bool departed(int32_t rank) const;

  PeerStream& peer_stream(int32_t rank, uint64_t id);
  void close_peer_stream(PeerStream& peer_stream);
  // Closes the streams with these ids to all ranks. Also closes a later connection for such an id,
  // whose peer dialled before it retired the stream.
  void retire_peer_streams(std::span<const uint64_t> ids);

  // abort() waits briefly for handshakes in progress, sends the cause to every peer and closes all
  // links. depart() sends a goodbye to every peer.
  void abort(const Status& cause);
  void depart();

 private:
  // Time limit of the wait for the cause of an ended stream or a refused dial: a failing peer sends it over a
  // control stream.
  static constexpr double kSecondsForCause = 1;
  // The number of retired ids that are kept: a later connection for an older id stays open.
  static constexpr size_t kRetired = 4096;
  using Key = std::pair<int32_t, uint64_t>;
  struct Dial {
    std::vector<std::unique_ptr<Handshake>> attempts;
    Handshake* chosen = nullptr;
    std::vector<std::string> failures;
    Deadline deadline = Deadline::never();
    bool is_wanted = true;  // false: a failure of this dial has no effect
  };

  RemoteLinks(net::EventLoop& loop, const Credentials& credentials, int32_t rank)
      : loop_(loop), credentials_(credentials), rank_(rank) {}
  std::string describe(int32_t rank) const;
  // Returns the error for a connection that ended with this errno, or with 0: an orderly end before
  // the rank's goodbye.
  Status lost(int32_t rank, int reason) const;
  ControlStream& control(int32_t rank);
  void begin_dial(Key key);
  void hurry(Dial& dial);
  bool is_open(Key key) const;
  void attach(Key key, Handshake& handshake);
  bool advance_dials();
  bool advance_dial(Key key, Dial& dial, bool& finished);
  void dial_expected();
  bool advance_pending_peers();
  bool settle(Handshake& peer);
  void finish_handshakes();
  bool poll_control(int32_t rank, ControlStream& stream, const Receiver* receiver);
  void check_peer_streams();
  void fail(Status status);
  void send_last(FrameKind kind, ByteView content);
  void set_timer();

  net::EventLoop& loop_;
  const Credentials& credentials_;
  int32_t rank_;
  std::unique_ptr<PeerAcceptor> acceptor_;
  std::vector<PeerRecord> records_;
  LinkTimes times_;
  std::map<int32_t, std::unique_ptr<ControlStream>> controls_;
  std::map<Key, std::unique_ptr<PeerStream>> peer_streams_;
  std::map<Key, Dial> dials_;
  std::deque<uint64_t> retired_;  // the last kRetired ids
  std::map<int32_t, Deadline> expected_;
  std::deque<std::pair<int32_t, Bytes>> kept_;
  Deadline cause_deadline_ = Deadline::never();  // end of the wait for the cause of a stream's end
  Status failure_;
};

}  // namespace hvd::collectives
