#include "rendezvous/server/reply_writer.h"

#include <algorithm>
#include <utility>

#include "net/http.h"

namespace hvd::rendezvous {
namespace {

namespace asio = net::asio;

// A body up to this size is copied behind its head, since a copy costs less than a second buffer.
constexpr size_t kSmallBody = 1024;

}  // namespace

void ReplyWriter::begin(Reply reply, Head head, bool is_held_back) {
  // A temporary, since clang 14 rejects emplace() with the fields of an aggregate.
  Outgoing& outgoing = outgoing_.emplace(Outgoing{std::move(reply), {}, 0, head.keep});
  const ByteView body = outgoing.reply.body();
  outgoing.head = net::response_head(outgoing.reply.status,
                                     {{"Hvd-Nonce", head.nonce},
                                      {"Hvd-Signature", head.signature},
                                      {"Connection", head.keep ? "" : "close"}},
                                     body.size());
  if (body.size() <= kSmallBody) {
    outgoing.head += as_text(body);
    outgoing.reply = {outgoing.reply.status, {}, nullptr};
  }
  if (is_held_back) return;
  net::error_code error;
  const ByteView rest = outgoing.reply.body();
  outgoing.sent =
      socket_.try_write(asio::buffer(outgoing.head), asio::buffer(rest.data(), rest.size()), error);
  outgoing.is_broken =
      error && error != asio::error::would_block && error != asio::error::try_again;
}

bool ReplyWriter::is_partial() const {
  return !outgoing_->is_broken && outgoing_->sent < outgoing_->head.size() + body_size();
}

net::Task<bool> ReplyWriter::finish() {
  const bool is_partly_sent = is_partial();
  const Outgoing outgoing = std::move(*outgoing_);
  outgoing_.reset();
  if (!is_partly_sent) co_return !outgoing.is_broken;
  const ByteView body = outgoing.reply.body();
  const size_t of_head = std::min(outgoing.sent, outgoing.head.size());
  const auto [failed, rest] =
      co_await socket_.write(asio::buffer(outgoing.head) + of_head,
                             asio::buffer(body.data(), body.size()) + (outgoing.sent - of_head));
  co_return !failed;
}

}  // namespace hvd::rendezvous
