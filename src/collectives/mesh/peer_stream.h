// A TCP stream to a rank on another host: authenticated, non-blocking, edge-triggered; with keys, in
// encrypted records. Owns the socket and does not interpret the bytes. RemoteLinks attaches the socket.
// ControlStream sends frames over a PeerStream, and the collective algorithms send tensors. One caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "collectives/mesh/record_layer.h"
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
  // Takes over a connected socket. With keys, both directions carry encrypted records.
  Status attach(GuardedFd socket, const std::optional<LinkKeys>& keys = std::nullopt);
  void close();

  // Return the number of bytes written or read; 0 before the stream is open, if the call would
  // block, and after the stream's end. After a partial write, the next write must begin with the
  // unwritten bytes: a record may already contain them.
  size_t write_some(ByteView bytes);
  size_t read_some(std::span<std::byte> bytes);
  // Like write_some, for up to four parts, by one system call for each record.
  size_t write_parts(std::span<const ByteView> parts);
  // Like read_some, by at most one system call for each record.
  size_t read_once(std::span<std::byte> bytes);
  // Returns whether a read may find bytes.
  bool may_read() const { return readable_ || (records_ && records_->opener.has_content()); }

  // Returns whether the connection has ended. Reads may still find bytes that arrived before.
  bool ended() const { return ended_; }
  // Returns the errno value of the end, or 0 if the peer closed the connection. EBADMSG: a record differs
  // from the record that the peer sent.
  int end_reason() const { return end_reason_; }

 private:
  void on_events(uint32_t events);
  void end(int reason);
  size_t wrote(ssize_t size);
  size_t receive(std::span<std::byte> bytes);
  size_t write_records(std::span<const ByteView> parts);
  size_t read_record(std::span<std::byte> bytes);

  struct Records {
    explicit Records(const LinkKeys& keys) : sealer(keys.sending), opener(keys.receiving) {}
    RecordSealer sealer;
    RecordOpener opener;
    size_t sealed = 0;  // bytes of the last sealed record that write_some has not counted yet
  };

  net::EventLoop& loop_;
  int32_t peer_;
  uint64_t id_;
  GuardedFd socket_;
  std::unique_ptr<Records> records_;  // null: the bytes are sent unencrypted
  bool readable_ = false;
  bool writable_ = false;
  bool closing_ = false;  // the peer has closed its end: a read after the last byte returns 0
  bool ended_ = false;
  int end_reason_ = 0;
};

}  // namespace hvd::collectives
