// The launcher's end of the ranks' store connections: each stream of the link becomes one end of a
// socket pair, whose other end the store's server gets. Carries bytes, with credit both ways.
// Lives on the launcher's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "launcher/protocol/notification.h"
#include "net/asio.h"
#include "net/frame.h"

namespace hvd::launcher {

// Granted to the agent for each connection when it opens one.
constexpr uint32_t kStoreWindow = 256 << 10;

class StoreStreams : public std::enable_shared_from_this<StoreStreams> {
 public:
  using Send = std::function<void(net::FrameType, uint32_t stream, uint32_t credit, ByteView)>;
  using Accept = std::function<void(net::StreamSocket)>;

  // Neither function is called after close().
  StoreStreams(net::asio::any_io_executor executor, Send send, Accept accept)
      : executor_(std::move(executor)), send_(std::move(send)), accept_(std::move(accept)) {}

  // A frame of a store connection. An error means that the agent broke a rule.
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
    net::Credit credit;                // of the agent, for what the server sends
    net::Window window{kStoreWindow};  // for what the rank sends
    Notification credited, filled;
    Bytes unwritten;              // of what the rank sent
    bool has_agent_end = false;   // the rank sends no more
    bool has_server_end = false;  // the server sends no more
    bool is_written = false;      // and has been given to the server, or cannot be
    bool is_reset = false;        // neither side cares any more
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
};

}  // namespace hvd::launcher
