// Sends the replies of one connection, one at a time. Sends as many bytes of head and body as the
// socket takes at once, and the rest later. Owns the current reply; decides neither its content nor
// its time limit. A Session owns it and calls it on the server's loop.
#pragma once

#include <optional>
#include <string>

#include "net/tls/accepted_socket.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {

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
  // Sends what the socket takes at once. Sends nothing yet if `is_held_back`.
  void begin(Reply reply, Head head, bool is_held_back);
  // True from begin() to finish().
  bool has_begun() const { return outgoing_.has_value(); }
  int status() const { return outgoing_->reply.status; }
  bool keeps_connection() const { return outgoing_->keep; }
  // The socket has not taken the whole reply, and finish() has to wait for the peer.
  bool is_partial() const;
  size_t body_size() const { return outgoing_->reply.body().size(); }
  // Sends the rest. False when the connection is broken.
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

}  // namespace hvd::rendezvous
