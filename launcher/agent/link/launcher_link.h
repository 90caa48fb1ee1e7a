// The agent's end of the link to its launcher: a stream of bytes over one connection after another. When
// the connection breaks while ranks run, it dials the launcher again, or waits for a new agent process that
// hands it a connection. Owns the connections. Does not parse the bytes. The agent owns it. Lives on the
// agent's loop.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "launcher/agent/link/link.h"
#include "launcher/agent/link/reattachment.h"
#include "launcher/agent/link/redialler.h"
#include "launcher/protocol/resumable_stream.h"
#include "net/event_loop.h"
#include "net/frame.h"

namespace hvd::launcher {

class LauncherLink {
 public:
  // `on_bytes` gets what the launcher sends. It may call any function of this object.
  LauncherLink(net::EventLoop& loop, OpenedLink opened, std::function<void(ByteView)> on_bytes);
  ~LauncherLink();

  // Begins to read.
  Status open();
  // The ranks run: from now on, the link survives the loss of its connection, for as long as the lease
  // where the agent dials, and else for as long as the launcher has set. A lease of 0: there is none. With a
  // lease, the launcher sends pings: when it is silent for a part of `silence_seconds`, after which this host is given
  // up, an agent that dials opens another connection beside the present one.
  void survive(double lease_seconds, double silence_seconds);
  // The launcher is being stopped: its silence means nothing until it sends bytes again.
  void expect_silence();
  // Why the link has ended. kAborted: the launcher has ended it, or the connection broke and cannot be
  // resumed.
  const Status& state() const { return state_; }

  // The number of bytes that send() accepts now; 0 while the connection takes no more, so that urgent
  // frames can still overtake others.
  size_t room() const;
  void send(ByteView bytes);
  // Writes as much as the connection takes now.
  void flush();
  // Whether the launcher has acknowledged everything. The end of its bytes proves nothing: a program that
  // carries the connection ends them when the connection breaks. Where the link cannot be resumed: whether
  // the last byte was written.
  bool is_delivered() const;

  // Whether another connection than the first one carries the link.
  bool has_moved() const { return has_moved_; }

  // The launcher needs nothing more.
  bool is_ended_by_launcher() const { return stream_.has_ended(); }

  // Call on_deadline() when it has passed.
  Deadline deadline() const;
  void on_deadline();

  // Ends the link: the launcher expects no other connection.
  void close();
  bool is_closed() const { return is_closed_; }

  // The descriptor that the launcher's bytes come from, or -1.
  int input() const { return connection_.input.get(); }

 private:
  // A connection that the launcher has not yet accepted.
  struct Offered {
    Link connection;
    Nonce challenge{};
    Resume offer;
    UniqueFd lifetime_fd;  // the process that handed over the connection ends when this is closed
    net::FrameParser parser{4096};
  };

  bool is_connected() const { return bool(connection_.input); }
  void on_readable();
  void take_deciphered();
  void take(std::span<std::byte> bytes);
  bool is_written() const { return written_ == unwritten_.size() && !stream_.has_unsent(); }
  void lose(Status why);
  // Waits for another connection in place of the present one, or ends the link.
  void await_another(Status why);
  void note_bytes();
  void end(Status why);
  void drop_connection();

  void on_dialled(Result<Returned> connection);
  void wait_for_reattachment();
  void offer(Link connection, const Nonce& challenge, UniqueFd lifetime_fd);
  void on_answer();
  bool take_answer(std::byte byte);
  void adopt();
  void drop_offer();

  net::EventLoop& loop_;
  ResumableStream stream_;
  Link connection_;
  UniqueFd lifetime_fd_;  // as in Offered
  bool has_moved_ = false;
  const double wait_seconds_;
  Redialler redialler_;
  const std::function<void(ByteView)> on_bytes_;
  Reattachment reattachment_;
  Status state_;
  bool is_closed_ = false;  // by close()

  Bytes unwritten_;  // a record, encrypted, behind its first written_ bytes
  size_t written_ = 0;
  bool is_waiting_ = false;  // for the connection to take more
  double survive_seconds_ = 0;
  double lease_seconds_ = 0;
  double replace_seconds_ = 0;
  // When bytes of the launcher last came. Max: its silence means nothing.
  Clock::time_point received_at_ = Clock::time_point::max();
  Deadline replace_at_ = Deadline::never();
  Status why_;  // why the last connection is lost
  std::unique_ptr<Offered> offered_;
  Deadline give_up_at_ = Deadline::never();
  Deadline answer_by_ = Deadline::never();
};

}  // namespace hvd::launcher
