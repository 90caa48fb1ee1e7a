// One connection of a server: reads requests, admits them, answers them in order, and closes the
// connection when a time limit passes. Owns the socket; never decides what a request means (Service).
// Lives on the server's loop and keeps itself alive until its connection is closed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "net/asio.h"
#include "net/http.h"
#include "rendezvous/server/client_proof.h"
#include "rendezvous/server/reply_writer.h"
#include "rendezvous/server/server_core.h"

namespace hvd::rendezvous {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<ServerCore> core, net::StreamSocket socket);
  ~Session();
  Session(const Session&) = delete;

  void start();
  // Who waits is told that the server is closing; everything else ends at once.
  void shut();

  // Ends without a word, so that the client comes again.
  void abandon();

  // What it waits for, if it does.
  std::optional<WaitingRequest> waiting() const;

 private:
  enum class Read { kRequest, kEnd, kRefused };

  net::Task<void> run();
  net::Task<Read> read_request();
  net::Task<bool> fill();
  net::Task<void> answer();
  net::Task<void> settle(Pending pending);
  net::Task<bool> finish_reply();
  net::Task<Read> refuse(Reply reply);
  net::Task<void> drain();
  net::Task<void> hand_over();

  std::optional<Reply> admit();
  void begin_reply(Reply reply, bool keep);
  bool keeps() const;
  bool waits_for_durable_store() const;
  size_t announced_body() const;
  void arm(std::chrono::milliseconds limit);
  void on_limit();
  void disarm();
  void watch_peer();
  void close();

  std::shared_ptr<ServerCore> core_;
  net::StreamSocket socket_;
  net::asio::steady_timer limit_;  // closes the connection when it fires
  net::asio::steady_timer wake_;   // ends the wait of settle
  std::unique_ptr<net::HttpRequestParser> parser_;
  std::vector<std::byte> input_;  // received, not yet parsed: [begin_, end_)
  size_t begin_ = 0;
  size_t end_ = 0;

  ClientProof client_;
  bool is_admitted_ = false;  // the request being read
  bool is_unsigned_ = false;  // and it is one for core_->unsigned_store
  bool is_signed_ = false;    // the reply being made

  // Begun where a reply becomes known, so that nothing stands between a set and who waits for it.
  ReplyWriter writer_;
  bool is_waiting_ = false;
  WaitingRequest waiting_;  // while it is
  bool is_lost_ = false;
  bool is_armed_ = false;     // limit_
  uint64_t limit_epoch_ = 0;  // a late timer must not close what was armed anew
  uint64_t watch_epoch_ = 0;
};

}  // namespace hvd::rendezvous
