// Sends the replies of one connection, one at a time: head and body, at once as far as the connection
// takes them, the rest later. Owns the reply that is on its way; never decides what it says or how
// long it may take. Lives in a Session, on the server's loop.
#pragma once

#include <optional>
#include <string>

#include "net/asio.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {

class ReplyWriter {
 public:
  // `socket` outlives this.
  explicit ReplyWriter(net::StreamSocket& socket) : socket_(socket) {}

  // What goes beside the status and the body; an empty text is not sent.
  struct Head {
    std::string nonce;
    std::string signature;
    bool keep = false;  // the connection
  };
  // Sends what the connection takes at once, or nothing yet when the reply is held back.
  void begin(Reply reply, Head head, bool is_held_back);
  // From begin to finish.
  bool has_begun() const { return outgoing_.has_value(); }
  int status() const { return outgoing_->reply.status; }
  bool keeps_connection() const { return outgoing_->keep; }
  // The peer has to take more, so that finish takes time.
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

  net::StreamSocket& socket_;
  std::optional<Outgoing> outgoing_;
};

}  // namespace hvd::rendezvous
