// One rank's TCP links to ranks on other hosts, opened on first use: one control stream per peer,
// and peer streams per group for data. Dials all addresses of a peer at once and keeps the first that
// proves itself; of two ranks that dial each other the lower one's connection stays.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/mesh/control_stream.h"
#include "collectives/mesh/handshake.h"
#include "collectives/mesh/peer_record.h"
#include "net/tcp_transport.h"

namespace hvd::collectives {

class RemoteLinks final : public net::DataLoop::Source {
 public:
  static Result<std::unique_ptr<RemoteLinks>> open(net::DataLoop& loop,
                                                   const Credentials& credentials, int32_t rank,
                                                   net::PortRange ports = {});
  ~RemoteLinks();

  uint16_t port() const { return listener_.port; }
  // Sets the records of the other ranks. A link must be open `dial_seconds` after its first use.
  Status start(const std::vector<PeerRecord>& records, double dial_seconds);
  // Nobody lives on another host: nothing will come in.
  void close_listener();

  // This rank is likely to be called by that one, and calls it if that does not happen: where only
  // one of two ranks can reach the other, the one that has nothing to say may be the one.
  void expect(int32_t rank);

  // Two parts that arrive as one message.
  Status send(int32_t rank, ByteView first, ByteView second);
  using Receiver = std::function<void(int32_t from, ByteView message)>;
  // Call after the loop has dispatched. True when anything moved; a failure ends all links.
  bool poll(const Receiver* receiver);
  // Whether there is anything that events may come for.
  bool in_use() const {
    return !controls_.empty() || !dials_.empty() || !pending_peers_.empty() || !expected_.empty();
  }
  // Messages that came while nobody took any.
  bool has_mail() const { return !kept_.empty(); }
  // Messages that could not be written yet.
  bool has_output() const;
  const Status& failure() const { return failure_; }
  // Whether its end has said goodbye.
  bool departed(int32_t rank) const;

  PeerStream& peer_stream(int32_t rank, uint64_t id);
  void close_peer_stream(PeerStream& peer_stream);

  // Tells every peer why, or that this rank leaves, as far as that goes without waiting; then
  // closes everything.
  void abort(const Status& cause);
  void depart();

  void on_events(uint32_t events) override;

 private:
  // A peer that fails refuses its new links at once; why it failed comes over the others.
  static constexpr double kSecondsForCause = 1;
  using Key = std::pair<int32_t, uint64_t>;
  struct Dial {
    std::vector<std::unique_ptr<Handshake>> attempts;
    Handshake* chosen = nullptr;
    std::vector<std::string> failures;
    Deadline deadline = Deadline::never();
    bool is_wanted = true;  // or else nobody misses it
  };

  RemoteLinks(net::DataLoop& loop, const Credentials& credentials, int32_t rank)
      : loop_(loop), credentials_(credentials), rank_(rank) {}
  std::string describe(int32_t rank) const;
  // A connection of it ended for this errno, or 0: in order, though it had not departed.
  Status lost(int32_t rank, int reason) const;
  ControlStream& control(int32_t rank);
  void begin_dial(Key key);
  void hurry(Dial& dial);
  bool is_open(Key key) const;
  void attach(Key key, GuardedFd socket);
  bool advance_dials();
  bool advance_dial(Key key, Dial& dial, bool& finished);
  void dial_expected();
  bool advance_pending_peers();
  void finish_handshakes();
  bool poll_control(int32_t rank, ControlStream& stream, const Receiver* receiver);
  void check_peer_streams();
  void fail(Status status);
  void say_last(FrameKind kind, ByteView content);
  void set_timer();

  net::DataLoop& loop_;
  const Credentials& credentials_;
  int32_t rank_;
  net::TcpListener listener_;
  std::vector<PeerRecord> records_;
  double dial_seconds_ = 30;
  std::map<int32_t, std::unique_ptr<ControlStream>> controls_;
  std::map<Key, std::unique_ptr<PeerStream>> peer_streams_;
  std::map<Key, Dial> dials_;
  std::map<int32_t, Deadline> expected_;
  std::vector<std::unique_ptr<Handshake>> pending_peers_;
  std::deque<std::pair<int32_t, Bytes>> kept_;
  Deadline cause_deadline_ = Deadline::never();  // for the cause of a peer stream's end
  Status failure_;
};

}  // namespace hvd::collectives
