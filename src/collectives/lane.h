// A TCP stream to a rank on another host, authenticated, non-blocking, edge-triggered. Which bytes
// travel on it is up to its two users. Called by one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "net/data_loop.h"

namespace hvd::collectives {

class Lane final : public net::DataLoop::Source {
 public:
  Lane(net::DataLoop& loop, int32_t peer, uint64_t id) : loop_(loop), peer_(peer), id_(id) {}
  ~Lane() { close(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  int32_t peer() const { return peer_; }
  uint64_t id() const { return id_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Takes over a connected socket.
  Status attach(GuardedFd socket);
  void close();

  // How much was taken or given now; 0 while it is not open or would block, and after its end.
  size_t write_some(ByteView bytes);
  size_t read_some(std::span<std::byte> bytes);

  // The peer's end is gone; reads may still find what came before.
  bool ended() const { return ended_; }
  // An errno value, or 0 when the peer closed it.
  int end_reason() const { return end_reason_; }

  void on_events(uint32_t events) override;

 private:
  void end(int reason);

  net::DataLoop& loop_;
  int32_t peer_;
  uint64_t id_;
  GuardedFd socket_;
  bool readable_ = false;
  bool writable_ = false;
  bool ended_ = false;
  int end_reason_ = 0;
};

}  // namespace hvd::collectives
