// A TCP stream to a rank on another host: authenticated, non-blocking, edge-triggered. Its two users
// define the bytes on it. One caller at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "net/data_loop.h"

namespace hvd::collectives {

class PeerStream final : public net::DataLoop::Source {
 public:
  PeerStream(net::DataLoop& loop, int32_t peer, uint64_t id) : loop_(loop), peer_(peer), id_(id) {}
  ~PeerStream() { close(); }
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  int32_t peer() const { return peer_; }
  uint64_t id() const { return id_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Takes over a connected socket.
  Status attach(GuardedFd socket);
  void close();

  // How much was taken or given now; 0 while it is not open or would block, and after its end.
  size_t write_some(ByteView bytes);
  size_t read_some(std::span<std::byte> bytes);
  // As write_some, of up to four parts behind each other, by one call of the system.
  size_t write_parts(std::span<const ByteView> parts);
  // As read_some, by one call of the system at most.
  size_t read_once(std::span<std::byte> bytes);
  // Whether a read may find anything.
  bool may_read() const { return readable_; }

  // The peer's end is gone; reads may still find what came before.
  bool ended() const { return ended_; }
  // An errno value, or 0 when the peer closed it.
  int end_reason() const { return end_reason_; }

  void on_events(uint32_t events) override;

 private:
  void end(int reason);
  size_t wrote(ssize_t size);

  net::DataLoop& loop_;
  int32_t peer_;
  uint64_t id_;
  GuardedFd socket_;
  bool readable_ = false;
  bool writable_ = false;
  bool closing_ = false;  // the peer has closed its end: reads find that behind the last byte
  bool ended_ = false;
  int end_reason_ = 0;
};

}  // namespace hvd::collectives
