// A TCP stream to a rank on another host: authenticated, non-blocking, edge-triggered. Owns the
// socket and does not interpret the bytes. RemoteLinks attaches the socket. ControlStream sends
// frames over it, and the collective algorithms send tensors. One caller at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "net/event_loop.h"

namespace hvd::collectives {

class PeerStream final {
 public:
  PeerStream(net::EventLoop& loop, int32_t peer, uint64_t id) : loop_(loop), peer_(peer), id_(id) {}
  ~PeerStream() { close(); }
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  int32_t peer() const { return peer_; }
  uint64_t id() const { return id_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Takes over a connected socket.
  Status attach(GuardedFd socket);
  void close();

  // Return the number of bytes written or read; 0 before the stream is open, when the call would
  // block, and after the stream's end.
  size_t write_some(ByteView bytes);
  size_t read_some(std::span<std::byte> bytes);
  // Like write_some, for up to four parts, by one system call.
  size_t write_parts(std::span<const ByteView> parts);
  // Like read_some, by at most one system call.
  size_t read_once(std::span<std::byte> bytes);
  // Returns whether a read may find bytes.
  bool may_read() const { return readable_; }

  // Returns whether the connection has ended. Reads may still find bytes that arrived before.
  bool ended() const { return ended_; }
  // The errno value of the end, or 0 when the peer closed the connection.
  int end_reason() const { return end_reason_; }

 private:
  void on_events(uint32_t events);
  void end(int reason);
  size_t wrote(ssize_t size);

  net::EventLoop& loop_;
  int32_t peer_;
  uint64_t id_;
  GuardedFd socket_;
  bool readable_ = false;
  bool writable_ = false;
  bool closing_ = false;  // the peer has closed its end: a read after the last byte finds that
  bool ended_ = false;
  int end_reason_ = 0;
};

}  // namespace hvd::collectives
