// The tunnel from the ranks of this host to the launcher's store: listens on an abstract Unix socket, and also on a
// loopback port if a setting requires it, and turns each connection into a stream of the link. Copies bytes without
// parsing them. The agent owns this object. Lives on the agent's loop.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/agent/link/outbox.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/frame.h"
#include "net/peer_user.h"

namespace hvd::launcher {

class StoreTunnel {
 public:
  StoreTunnel(net::EventLoop& loop, Outbox& outbox) : loop_(loop), outbox_(outbox) {}
  ~StoreTunnel() { close(); }

  // `credit`: the number of bytes that the launcher accepts initially from each connection.
  Status listen(uint32_t credit);
  // Listens on a loopback port for programs without Unix sockets, and serves only processes of the
  // agent's user and of root.
  Status listen_on_loopback(const net::PortRange& ports);
  // Returns the loopback port, or 0 if the tunnel does not listen on a loopback port.
  uint16_t loopback_port() const { return loopback_port_; }
  // Returns the abstract name of the listening socket.
  const std::string& name() const { return name_; }
  // Handles a frame of a stream from kFirstStoreStream on. An error means that the launcher violated
  // the protocol.
  Status handle(const net::FrameHeader& header, ByteView payload);
  void close();

 private:
  struct Connection {
    UniqueFd socket;
    net::Credit credit;             // for bytes to the launcher
    net::Window window;             // for bytes from the launcher
    Bytes unwritten;                // bytes from the launcher for the rank
    bool has_read_end = false;      // the rank has sent end of file
    bool has_launcher_end = false;  // the launcher has sent end of file
  };

  Status watch(UniqueFd socket, UniqueFd& listener);
  void accept(const UniqueFd& listener);
  // Refuses another user's process on the loopback port.
  static void refuse(int socket, const net::PeerUser& peer);
  void on_ready(uint32_t stream, uint32_t events);
  void read(uint32_t stream, Connection& connection, bool is_hung_up);
  void write(uint32_t stream, Connection& connection);
  // Watches the socket for the events needed next. Drops the connection after the end of both directions.
  void settle(uint32_t stream);
  void reset(uint32_t stream);
  void drop(uint32_t stream);

  net::EventLoop& loop_;
  Outbox& outbox_;
  UniqueFd listener_, loopback_;
  // Random, so that no other user can bind the name first.
  const std::string name_ = cat("horovod-store-", random_hex(16));
  uint16_t loopback_port_ = 0;
  uint32_t credit_ = 0;
  uint32_t next_stream_ = kFirstStoreStream;
  std::map<uint32_t, Connection> connections_;
};

}  // namespace hvd::launcher
