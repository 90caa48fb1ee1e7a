// How a session's replies go out, and whether its connection is kept after them.
#include <array>
#include <utility>

#include "base/text.h"
#include "rendezvous/server/session.h"

namespace hvd::rendezvous {

namespace asio = net::asio;

namespace {

// Goes behind its head in one piece: copying it is less than what a second one costs.
constexpr size_t kSmallBody = 1024;
constexpr std::chrono::milliseconds kDrain{2000};

}  // namespace

bool Session::keeps() const {
  if (core_->is_closing) return false;
  // Clients of the original's server, which always closes, may wait for that.
  if (is_unsigned_) return to_lower(parser_->field("Connection")) == "keep-alive";
  // Without hello there is nobody to keep a connection for.
  return parser_->keep_alive() && key_;
}

// What the end of the job brings about rests on nothing.
bool Session::waits_for_durable_store() const {
  return core_->durable && is_signed_ && !core_->is_closing;
}

// Sends what the connection takes at once, unless the reply has to wait until what it rests on is
// kept; finish_reply sends the rest.
void Session::begin_reply(Reply reply, bool keep) {
  // A value, since clang 14 cannot see how to make one inside of an optional.
  Outgoing& outgoing = outgoing_.emplace(Outgoing{std::move(reply), {}, 0, keep});
  const ByteView body = outgoing.reply.body();
  std::string signature;
  if (is_signed_) {
    signature = to_hex(key_->sign_response(count_, outgoing.reply.status, outgoing.reply.digest()));
  }
  outgoing.head = net::response_head(outgoing.reply.status,
                                     {{"Hvd-Nonce", std::exchange(server_nonce_, {})},
                                      {"Hvd-Signature", signature},
                                      {"Connection", keep ? "" : "close"}},
                                     body.size());
  const bool is_one_piece = body.size() <= kSmallBody;
  if (is_one_piece) {
    outgoing.head += as_text(body);
    outgoing.reply = {outgoing.reply.status, {}, nullptr};
  }
  if (waits_for_durable_store()) return;
  net::error_code error;
  if (is_one_piece) {
    outgoing.sent = socket_.write_some(asio::buffer(outgoing.head), error);
  } else {
    const std::array<asio::const_buffer, 2> parts{asio::buffer(outgoing.head),
                                                  asio::buffer(body.data(), body.size())};
    outgoing.sent = socket_.write_some(parts, error);
  }
  outgoing.is_broken =
      error && error != asio::error::would_block && error != asio::error::try_again;
}

// False when the connection is broken.
net::Task<bool> Session::finish_reply() {
  const Outgoing outgoing = std::move(*std::exchange(outgoing_, {}));
  const ByteView body = outgoing.reply.body();
  if (outgoing.is_broken) co_return false;
  if (outgoing.sent == outgoing.head.size() + body.size()) co_return true;
  // The peer's window is full: from here on it has limited time.
  arm(core_->limits.transfer_time(body.size()));
  const size_t of_head = std::min(outgoing.sent, outgoing.head.size());
  const std::array<asio::const_buffer, 2> parts{
      asio::buffer(outgoing.head) + of_head,
      asio::buffer(body.data(), body.size()) + (outgoing.sent - of_head)};
  const auto [failed, rest] = co_await asio::async_write(socket_, parts, net::use_tuple);
  if (is_proven_) disarm();
  co_return !failed;
}

// Answers a request whose body was not read: the connection is of no use any more.
net::Task<Session::Read> Session::refuse(Reply reply) {
  is_signed_ = false;
  core_->monitor.count("refused", reply.status);
  begin_reply(std::move(reply), false);
  co_await finish_reply();
  co_return Read::kRefused;
}

// Takes what a refused client still sends: closing at once would reset the connection, and the
// client would lose the sentence that says why.
net::Task<void> Session::drain() {
  net::error_code ignored;
  socket_.shutdown(net::StreamSocket::shutdown_send, ignored);
  arm(kDrain);
  for (;;) {
    begin_ = end_ = 0;
    const bool filled = co_await fill();
    if (!filled) co_return;
  }
}

}  // namespace hvd::rendezvous
