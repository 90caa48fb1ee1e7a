// The launcher's end of the ranks' store connections. Owns one end of a socket pair for each store connection, and
// passes the other end to the rendezvous server. Copies bytes in both directions, with credit-based flow control.
// AgentLink owns this object and passes frames to it. Lives on the launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "net/asio.h"
#include "net/frame.h"
#include "net/notification.h"

namespace hvd::launcher {

// The agent's initial credit for each connection, in bytes.
constexpr uint32_t kStoreWindow = 256 << 10;

class StoreStreams : public std::enable_shared_from_this<StoreStreams> {
 public:
  using Send = std::function<void(net::FrameType, uint32_t stream, uint32_t credit, ByteView)>;
  using Accept = std::function<void(net::StreamSocket)>;

  // After close(), neither function is called.
  StoreStreams(net::asio::any_io_executor executor, Send send, Accept accept)
      : executor_(std::move(executor)), send_(std::move(send)), accept_(std::move(accept)) {}

  // Handles a frame of a store connection. Returns an error if the agent violates the protocol.
  Status handle(const net::FrameHeader& header, ByteView payload);
  void close();

 private:
  struct Connection {
    Connection(net::StreamSocket s, uint32_t granted)
        : socket(std::move(s)),
          credit(granted),
          credited(socket.get_executor()),
          filled(socket.get_executor()) {}
    net::StreamSocket socket;
    net::Credit credit;                // granted by the agent, for bytes from the server
    net::Window window{kStoreWindow};  // for bytes from the rank
    net::Notification credited, filled;
    Bytes unwritten;              // bytes from the rank, not yet written to the server
    bool has_agent_end = false;   // the rank has sent end of file
    bool has_server_end = false;  // the server has sent end of file
    bool is_written = false;      // the rank's last byte was written, or the write failed
    bool is_reset = false;        // one side has dropped the connection
  };

  Status open(const net::FrameHeader& header);
  net::Task<void> read(uint32_t stream, std::shared_ptr<Connection> connection);
  net::Task<void> write(uint32_t stream, std::shared_ptr<Connection> connection);
  void settle(uint32_t stream, Connection& connection);

  net::asio::any_io_executor executor_;
  Send send_;
  Accept accept_;
  std::map<uint32_t, std::shared_ptr<Connection>> connections_;
  bool is_closed_ = false;
  bool has_warned_ = false;
};

}  // namespace hvd::launcher
