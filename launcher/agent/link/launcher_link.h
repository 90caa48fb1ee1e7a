// The agent's end of the link to its launcher: a stream of bytes that survives the loss of a connection. If the
// connection breaks while ranks run, this end connects to the launcher again, or waits for a new agent process that
// passes a new connection to this process. Owns the connections. Does not parse the bytes. The agent owns this object.
// Lives on the agent's loop.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "launcher/agent/link/link.h"
#include "launcher/agent/link/reattachment.h"
#include "launcher/protocol/resumable_stream.h"
#include "net/event_loop.h"
#include "net/frame.h"

namespace hvd::launcher {

class LauncherLink {
 public:
  // `on_bytes` gets the bytes from the launcher; the callback may call any function of this object.
  LauncherLink(net::EventLoop& loop, OpenedLink opened, std::function<void(ByteView)> on_bytes);
  ~LauncherLink();

  // Begins to read from the connection.
  Status open();
  // Call when the ranks run: after the call, the link survives the loss of its connection. An agent that connects by
  // itself retries for the lease time. Another agent waits for OpenSession::wait_seconds, at most the lease time.
  // `lease_seconds` 0: no lease. `silence_seconds`: shortest_silence(). After a part of this time
  // (replace_link_after()) without a byte from the launcher, an agent that connects by itself opens another connection
  // in parallel.
  void survive(double lease_seconds, double silence_seconds);
  // Call when the launcher is about to stop: its silence is then ignored until it sends bytes again.
  void expect_silence();
  // Returns ok, or why the link has ended. kAborted: one end has ended the link, or the connection broke and the link
  // cannot be resumed. kFailedPrecondition: the launcher has refused to resume it.
  const Status& state() const { return state_; }

  // Returns the number of bytes that send() accepts now. 0 while the connection is full, so that urgent frames can
  // still overtake other frames.
  size_t room() const;
  void send(ByteView bytes);
  // Writes as much as the connection accepts now.
  void flush();
  // Returns whether the launcher has acknowledged everything. End of file proves nothing: a program such as ssh, which
  // carries the connection, also closes its pipe when the network breaks. If the link cannot resume, returns whether
  // the last byte was written.
  bool is_delivered() const;

  // Returns whether another connection has replaced the first one.
  bool has_moved() const { return has_moved_; }

  // Returns whether the launcher has ended the link because it needs no more messages.
  bool is_ended_by_launcher() const { return stream_.has_ended(); }

  Deadline deadline() const;
  void on_deadline();

  // Ends the link: the launcher then expects no new connection.
  void close();
  bool is_closed() const { return is_closed_; }

  // Returns the descriptor of the launcher's bytes; -1 while the link has no connection.
  int input() const { return connection_.input.get(); }

 private:
  // A connection on which this end has offered to resume, until the launcher answers.
  struct Offered {
    Link connection;
    Nonce challenge{};
    Resume offer;
    UniqueFd lifetime_fd;  // closing this descriptor ends the process that passed the connection
    net::FrameParser parser{4096};
  };

  bool is_connected() const { return bool(connection_.input); }
  void on_readable();
  void take_deciphered();
  void take(std::span<std::byte> bytes);
  bool is_written() const { return written_ == unwritten_.size() && !stream_.has_unsent(); }
  void lose(Status why);
  // Waits for a new connection in place of the current connection, or ends the link.
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
  UniqueFd lifetime_fd_;  // like Offered::lifetime_fd
  bool has_moved_ = false;
  const double wait_seconds_;
  Redialler redialler_;
  const std::function<void(ByteView)> on_bytes_;
  Reattachment reattachment_;
  Status state_;
  bool is_closed_ = false;  // close() was called

  Bytes unwritten_;  // a record, encrypted with TLS, of which written_ bytes were written
  size_t written_ = 0;
  bool is_waiting_ = false;  // until the connection accepts more bytes
  double survive_seconds_ = 0;
  double lease_seconds_ = 0;
  double replace_seconds_ = 0;
  // Arrival time of the launcher's last bytes. The maximum value: the launcher's silence is ignored.
  Clock::time_point received_at_ = Clock::time_point::max();
  Deadline replace_at_ = Deadline::never();
  Status why_;  // why the last connection was lost
  std::unique_ptr<Offered> offered_;
  Deadline give_up_at_ = Deadline::never();
  Deadline answer_by_ = Deadline::never();
};

}  // namespace hvd::launcher
