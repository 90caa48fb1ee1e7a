// One connection of a server: reads requests, checks their signatures, sends replies in order, and
// closes the connection when a time limit passes. Owns the socket; StoreService executes the requests.
// Server creates the session, which lives on the server's loop and keeps itself alive until the connection closes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/asio.h"
#include "net/http.h"
#include "net/tls/tls_front.h"
#include "rendezvous/server/client_proof.h"
#include "rendezvous/server/server_core.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {

// Sends the replies of one connection, one at a time. Sends as many bytes of head and body as the socket accepts at
// once, and the rest later. Owns the current reply.
class ReplyWriter {
 public:
  // `socket` outlives this object.
  explicit ReplyWriter(net::AcceptedSocket& socket) : socket_(socket) {}

  // Header fields of the reply; an empty field is not sent.
  struct Head {
    std::string nonce;
    std::string signature;
    bool keep = false;  // keep the connection open after this reply
  };
  // Sends as many bytes as the socket accepts at once, or nothing if `is_held_back`.
  void begin(Reply reply, Head head, bool is_held_back);
  // Returns true from begin() to finish().
  bool has_begun() const { return outgoing_.has_value(); }
  int status() const { return outgoing_->reply.status; }
  bool keeps_connection() const { return outgoing_->keep; }
  // Returns true if the socket has not accepted the whole reply, and finish() must wait for the peer.
  bool is_partial() const;
  size_t body_size() const { return outgoing_->reply.body().size(); }
  // Sends the rest. Returns false if the connection is broken.
  net::Task<bool> finish();

 private:
  struct Outgoing {
    Reply reply;
    std::string head;
    size_t sent = 0;
    bool keep = false;
    bool is_broken = false;
  };

  net::AcceptedSocket& socket_;
  std::optional<Outgoing> outgoing_;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `takes_unsigned`: also accepts requests of Horovod's own workers, if the server has a store for them.
  Session(std::shared_ptr<ServerCore> core, net::AcceptedSocket socket, bool takes_unsigned);
  ~Session();
  Session(const Session&) = delete;

  void start();
  // Answers a waiting request with an error (503: the server is closing). Without such a request, ends at once.
  void shut();

  // Closes the connection without a reply: the client repeats its request at the next server.
  void abandon();
  // Ends the connection at once.
  void close();

  // Returns whether a client was admitted: by a signature, or by its user for unsigned requests.
  bool is_proven() const { return client_.is_proven() || (is_unsigned_ && is_admitted_); }

  std::optional<WaitingRequest> waiting() const;

 private:
  enum class Read { kRequest, kEnd, kRefused };

  net::Task<void> run();
  net::Task<Read> read_request();
  net::Task<bool> fill();
  net::Task<void> answer();
  net::Task<void> execute(StoreRequest request);
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

  std::shared_ptr<ServerCore> core_;
  const bool takes_unsigned_;
  net::AcceptedSocket socket_;
  net::asio::steady_timer limit_;  // closes the connection when it fires
  net::asio::steady_timer wake_;   // ends the wait of settle
  std::unique_ptr<net::HttpRequestParser> parser_;
  std::vector<std::byte> input_;  // received, not yet parsed: [begin_, end_)
  size_t begin_ = 0;
  size_t end_ = 0;

  ClientProof client_;
  bool is_admitted_ = false;           // the head of the current request is accepted
  bool is_unsigned_ = false;           // the current request is for core_->unsigned_store
  UnsignedStore::Room unsigned_room_;  // for the body of the current request
  bool is_signed_ = false;             // the current reply gets a signature

  // A reply begins in the call that completes it: a PUT sends to each waiting GET without an
  // iteration of the loop in between.
  ReplyWriter writer_;
  bool is_waiting_ = false;
  WaitingRequest waiting_;  // valid while is_waiting_
  bool is_lost_ = false;
  bool is_armed_ = false;  // limit_ is running
  uint64_t limit_epoch_ =
      0;  // number of the setting of limit_; events of an earlier setting are ignored
  uint64_t watch_epoch_ =
      0;  // number of the current watch_peer; events of an earlier one are ignored
};

}  // namespace hvd::rendezvous
