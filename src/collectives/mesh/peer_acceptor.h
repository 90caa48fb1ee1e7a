// The accepting side of the links to ranks on other hosts. Listens on the addresses that this rank
// publishes, and holds each connection until its peer has proven that it belongs to the job. Limits the
// number and the age of these connections, so that strangers cannot use up the descriptors of the user's
// program. RemoteLinks owns PeerAcceptor. One caller at a time; never waits.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/mesh/handshake.h"
#include "net/tcp_transport.h"

namespace hvd::collectives {

class PeerAcceptor final {
 public:
  static Result<std::unique_ptr<PeerAcceptor>> open(net::EventLoop& loop,
                                                    const Credentials& credentials, int32_t rank,
                                                    const std::vector<Bytes>& addresses,
                                                    net::PortRange ports);
  ~PeerAcceptor() { close(); }

  // Returns 0 if no address exists: no peer can connect to this rank.
  uint16_t port() const { return listeners_.empty() ? 0 : listeners_.front().port; }
  // Begins to accept. `leaders`: the leader of each rank, equal for the ranks of one host. Closes a
  // connection if its peer does not prove its rank within `proof_seconds`.
  Status start(const std::vector<PeerRecord>& records, const std::vector<int32_t>& leaders,
               double proof_seconds);
  // Closes the listeners; pending connections stay.
  void close();

  // Passes each proven peer to `take`, which returns whether the connection may leave the queue.
  // Drops connections that failed or took too long. Returns true if anything changed.
  bool advance(const std::function<bool(Handshake&)>& take);
  void drop_all();
  bool has_pending() const { return !known_.pending.empty() || !unknown_.pending.empty(); }
  // Returns whether advance() has anything to do.
  bool has_work() const { return has_pending() || !pause_end_.is_never(); }
  bool has_proven(int32_t rank, uint64_t stream) const;
  // Returns the next time at which advance() has something to do without an event.
  Deadline deadline() const;
  // Returns whether the deadline may have changed since the last call.
  bool take_changed() { return std::exchange(changed_, false); }

 private:
  struct Pending {
    std::unique_ptr<Handshake> handshake;
    Bytes address;
  };
  struct Queue {
    std::vector<Pending> pending;  // the oldest first
    size_t limit = 0;
  };

  PeerAcceptor(net::EventLoop& loop, const Credentials& credentials, int32_t rank)
      : loop_(loop), credentials_(credentials), rank_(rank) {}
  void accept_peers(const net::TcpListener& listener);
  bool accept_one(const net::TcpListener& listener);
  bool make_room(Queue& queue);
  bool advance(Queue& queue, const std::function<bool(Handshake&)>& take);
  void pause(double seconds);
  Clock::time_point end_of(const Handshake& handshake) const;

  net::EventLoop& loop_;
  const Credentials& credentials_;
  const int32_t rank_;
  int32_t size_ = 0;
  std::chrono::duration<double> proof_time_{10};
  std::vector<net::TcpListener> listeners_;
  std::set<std::string, std::less<>> addresses_;  // addresses of peers, as bytes
  Queue known_;                                   // connections from addresses_
  Queue unknown_;                           // other addresses: strangers, or peers behind a NAT
  Deadline pause_end_ = Deadline::never();  // accepts nothing before this time; never: no pause
  bool changed_ = false;
  bool has_warned_ = false;
};

}  // namespace hvd::collectives
