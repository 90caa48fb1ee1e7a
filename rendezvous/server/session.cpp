#include "rendezvous/server/session.h"

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/text.h"
#include "rendezvous/server/unsigned_requests.h"

namespace hvd::rendezvous {

namespace {

namespace asio = net::asio;

constexpr std::string_view kAgent = "/v1/agent";
constexpr size_t kHeadChunk = 4096;
// Size of one read of a body. Larger than for a head, so that a large body takes fewer reads.
constexpr size_t kBodyChunk = 64 * 1024;
// Time limit for the body of an unsigned request, equal to the limit of Horovod's own server.
constexpr std::chrono::milliseconds kUnsignedBody{3000};
constexpr std::chrono::milliseconds kDrain{2000};
// A body up to this size is copied behind its head, since a copy costs less than a second buffer.
constexpr size_t kSmallBody = 1024;

// Returns "keys" for "/v1/keys/x?y", "health" for "/health". For an unknown resource, returns "other": a
// stranger's request must not add an entry to the table of Monitor.
std::string_view resource_of(std::string_view target) {
  constexpr std::string_view kKnown[] = {"health", "metrics", "status", "hello", "keys",
                                         "swap",   "list",    "watch",  "join",  "exchange"};
  constexpr std::string_view kRoot = "/v1";
  if (target.starts_with(kRoot)) target.remove_prefix(kRoot.size());
  target.remove_prefix(std::min<size_t>(target.size(), 1));
  target = target.substr(0, target.find_first_of("/?"));
  for (const std::string_view known : kKnown) {
    if (target == known) return known;
  }
  return "other";
}

Status closing() { return aborted("the rendezvous server is closing: the job has ended"); }

}  // namespace

Session::Session(std::shared_ptr<ServerCore> core, net::AcceptedSocket socket, bool takes_unsigned)
    : core_(std::move(core)),
      takes_unsigned_(takes_unsigned && core_->unsigned_store),
      socket_(std::move(socket)),
      limit_(socket_.get_executor()),
      wake_(socket_.get_executor()),
      parser_(net::make_request_parser(core_->limits.http)),
      client_(core_->secret),
      writer_(socket_) {
  core_->sessions.insert(this);
}

Session::~Session() { core_->sessions.erase(this); }

void Session::start() {
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->run(); },
      [self = shared_from_this()](const std::exception_ptr& thrown) {
        // Only a lack of memory throws here, and ends this connection.
        if (thrown) log::error("a rendezvous connection ended for lack of memory");
        self->close();
      });
}

void Session::shut() {
  if (is_waiting_) {
    if (!writer_.has_begun()) begin_reply(Reply::failure(closing()), false);
    wake_.cancel();
  } else {
    close();
  }
}

void Session::abandon() {
  is_lost_ = true;
  wake_.cancel();
  close();
}

void Session::close() {
  disarm();
  socket_.close();
}

void Session::arm(std::chrono::milliseconds limit) {
  is_armed_ = true;
  limit_.expires_after(limit);
  limit_.async_wait(
      [weak = weak_from_this(), epoch = ++limit_epoch_](const net::error_code& error) {
        const auto self = weak.lock();
        if (!error && self && self->limit_epoch_ == epoch) self->on_limit();
      });
}

void Session::on_limit() {
  if (is_unsigned_ && is_admitted_ && !parser_->done()) {
    net::error_code ignored;
    socket_.try_write(asio::buffer(net::response_head(408, {{"Connection", "close"}}, 0)), {},
                      ignored);
  }
  close();
}

void Session::disarm() {
  if (!std::exchange(is_armed_, false)) return;
  ++limit_epoch_;
  limit_.cancel();
}

net::Task<void> Session::run() {
  arm(core_->limits.handshake);
  for (;;) {
    const Read read = co_await read_request();
    if (read == Read::kEnd) co_return;
    if (read == Read::kRefused) break;
    if (parser_->target() == kAgent) co_return co_await hand_over();
    co_await answer();
    if (is_lost_) co_return;
    if (waits_for_durable_store()) {
      const bool confirmed = co_await core_->durable->confirm();
      if (!confirmed) co_return;
    }
    core_->monitor.count(is_unsigned_ ? "plain" : resource_of(parser_->target()), writer_.status());
    const bool keep = writer_.keeps_connection();
    const bool written = co_await finish_reply();
    if (!written || !keep) co_return;
    if (is_unsigned_) arm(core_->limits.handshake);
  }
  co_await drain();
}

net::Task<Session::Read> Session::read_request() {
  parser_->reset();
  is_admitted_ = is_unsigned_ = false;
  for (;;) {
    const auto consumed = parser_->feed(ByteView(input_).subspan(begin_, end_ - begin_));
    if (!consumed.ok()) {
      Reply refusal{parser_->fault(), consumed.status().message(), nullptr};
      co_return co_await refuse(std::move(refusal));
    }
    begin_ += *consumed;
    if (parser_->head_done() && !is_admitted_) {
      std::optional<Reply> refusal = admit();
      if (refusal) co_return co_await refuse(std::move(*refusal));
      is_admitted_ = true;
      if (is_unsigned_)
        arm(kUnsignedBody + core_->limits.body_time(announced_body()));
      else if (client_.is_proven())
        disarm();  // the next iteration sets the limit for the body
      continue;
    }
    if (parser_->done()) co_return Read::kRequest;
    // A client that has proven itself may be idle for days. The limit of a request runs from its first
    // byte; most requests come in one read and need no timer.
    if (client_.is_proven()) {
      const bool is_idle = begin_ == end_ && !parser_->head_done();
      if (is_idle)
        disarm();
      else if (!is_armed_)
        arm(core_->limits.transfer_time(announced_body()));
    }
    const bool filled = co_await fill();
    if (!filled) co_return Read::kEnd;
  }
}

// Reads more bytes into input_; returns false if the connection has ended.
net::Task<bool> Session::fill() {
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t chunk = parser_->head_done() ? kBodyChunk : kHeadChunk;
  if (input_.size() - end_ < chunk && begin_ > 0) {
    std::copy(input_.begin() + static_cast<std::ptrdiff_t>(begin_),
              input_.begin() + static_cast<std::ptrdiff_t>(end_), input_.begin());
    end_ -= std::exchange(begin_, 0);
  }
  if (input_.size() - end_ < chunk) input_.resize(end_ + chunk);
  const auto buffer = asio::buffer(input_.data() + end_, input_.size() - end_);
  const auto [error, size] = co_await socket_.read_some(buffer);
  end_ += size;
  co_return !error && size > 0;
}

// Returns the size of the body by Content-Length; 0 while the head is incomplete. The parser has refused
// a length that is too large or not a number.
size_t Session::announced_body() const {
  if (!parser_->head_done()) return 0;
  return static_cast<size_t>(parse_int(parser_->field("Content-Length")).value_or(0));
}

// Returns nullopt if the head of the request is accepted, else the refusal.
std::optional<Reply> Session::admit() {
  if (!parser_->field("Transfer-Encoding").empty()) {
    return Reply{411, "Transfer-Encoding is not supported: send Content-Length", nullptr};
  }
  // Horovod's own workers do not use TLS. With TLS, the server could not read the client's user.
  is_unsigned_ = takes_unsigned_ && !socket_.is_encrypted() &&
                 !parser_->target().starts_with("/v1/") && !Monitor::is_its(parser_->target());
  if (is_unsigned_) {
    return admit_unsigned(*core_, *parser_, socket_.native_handle(), unsigned_room_);
  }
  const bool is_hello = parser_->target() == "/v1/hello", is_agent = parser_->target() == kAgent;
  const bool is_signed =
      !is_hello && !is_agent &&
      (!Monitor::is_its(parser_->target()) || parser_->field("Authorization").starts_with("HVD1 "));
  if (is_signed) return client_.admit(*parser_);
  // A client that has not proven the secret may not use memory for a body.
  if (announced_body() > 0) return Reply{400, "the request has a body: send none", nullptr};
  if (is_hello) return {};
  if (!is_agent) return admit_monitor(*core_, *parser_);
  return admit_agent(*core_, *parser_, socket_.native_handle(), socket_.is_encrypted());
}

std::optional<WaitingRequest> Session::waiting() const {
  if (!is_waiting_) return {};
  return waiting_;
}

std::vector<WaitingRequest> ServerCore::waiting() const {
  std::vector<WaitingRequest> all;
  for (const Session* session : sessions) {
    if (auto one = session->waiting()) all.push_back(std::move(*one));
  }
  return all;
}

net::Task<void> Session::answer() {
  is_signed_ = parser_->target() != "/v1/hello";
  if (!is_signed_) {
    Reply reply = client_.hello(*parser_);
    co_return begin_reply(std::move(reply), keeps());
  }
  if (is_unsigned_) {
    is_signed_ = false;
    unsigned_room_.reset();  // the store takes room for the value
    co_return begin_reply(answer_unsigned(*core_, *parser_), keeps());
  }
  is_signed_ = parser_->field("Authorization").starts_with("HVD1 ");
  if (!is_signed_) co_return begin_reply(answer_monitor(*core_, parser_->target()), keeps());
  StoreRequest request{std::string(parser_->method()), std::string(parser_->target()),
                       parser_->take_body(), client_.body_digest()};
  const Digest digest = request.body.empty() ? digest_of_nothing() : sha256(request.body);
  if (!equal_in_constant_time(digest, client_.body_digest())) {
    co_return begin_reply({403, "the body is not the one that was signed", nullptr}, keeps());
  }
  if (Monitor::is_its(parser_->target()))
    co_return begin_reply(answer_monitor(*core_, parser_->target()), keeps());
  co_await execute(std::move(request));
}

net::Task<void> Session::execute(StoreRequest request) {
  auto outcome = core_->service.start(std::move(request), [this](Reply reply) {
    if (!writer_.has_begun()) begin_reply(std::move(reply), keeps());
    wake_.cancel();
  });
  if (auto* reply = std::get_if<Reply>(&outcome)) {
    co_return begin_reply(std::move(*reply), keeps());
  }
  Pending pending = std::move(std::get<Pending>(outcome));
  co_await settle(std::move(pending));
}

// Passes the connection of an agent to the launcher. Agent and launcher then authenticate each other by
// the launcher's own protocol.
net::Task<void> Session::hand_over() {
  const std::string head =
      net::response_head(101, {{"Connection", "Upgrade"}, {"Upgrade", "horovod-agent"}}, 0);
  const auto [error, size] = co_await socket_.write(asio::buffer(head));
  disarm();
  if (!error && core_->on_agent) core_->on_agent(std::move(socket_));
}

net::Task<void> Session::settle(Pending pending) {
  disarm();
  is_waiting_ = true;
  const std::string_view target = parser_->target();
  waiting_ = {cat(parser_->method(), " ", target.substr(0, target.find('?'))), Clock::now()};
  wake_.expires_at(pending.deadline.time());
  watch_peer();
  co_await wake_.async_wait(net::use_tuple);
  is_waiting_ = false;
  ++watch_epoch_;
  socket_.cancel();
  if (!writer_.has_begun()) {
    Reply expired = pending.expired();
    begin_reply(std::move(expired), keeps());
  }
  // Withdraw also after a reply: if shut() made the reply, the service still has this request in a queue.
  pending.withdraw();
}

// Ends the wait when the peer of a waiting request closes the connection.
void Session::watch_peer() {
  if (end_ - begin_ > core_->limits.http.head_bytes) return;
  socket_.async_wait_read([weak = weak_from_this(),
                           epoch = ++watch_epoch_](const net::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->watch_epoch_ != epoch) return;
    self->input_.resize(std::max(self->input_.size(), self->end_ + kHeadChunk));
    net::error_code failed;
    const size_t size =
        self->socket_.try_read(asio::buffer(self->input_.data() + self->end_, kHeadChunk), failed);
    self->end_ += size;
    if (failed && failed != asio::error::would_block && failed != asio::error::try_again) {
      self->is_lost_ = true;
      self->wake_.cancel();
    } else {
      self->watch_peer();
    }
  });
}

bool Session::keeps() const {
  if (core_->is_closing) return false;
  // Horovod's own server always closes the connection, and its clients may wait for the end.
  if (is_unsigned_) return to_lower(parser_->field("Connection")) == "keep-alive";
  // A client that has not sent hello cannot sign a second request.
  return parser_->keep_alive() && client_.has_key();
}

// A signed reply waits until the durable store has confirmed all earlier changes. A reply that the end of
// the job caused does not depend on a change.
bool Session::waits_for_durable_store() const {
  return core_->durable && is_signed_ && !core_->is_closing;
}

// Sends as much as the socket accepts, or nothing while the reply waits for the durable store;
// finish_reply() sends the rest.
void Session::begin_reply(Reply reply, bool keep) {
  ReplyWriter::Head head{client_.take_nonce(), is_signed_ ? client_.signature_of(reply) : "", keep};
  writer_.begin(std::move(reply), std::move(head), waits_for_durable_store());
}

// Sends the rest of the reply. Returns false if the connection is broken.
net::Task<bool> Session::finish_reply() {
  const bool takes_time = writer_.is_partial();
  // The peer's window is full: the time limit for the rest begins now.
  if (takes_time) arm(core_->limits.transfer_time(writer_.body_size()));
  const bool is_written = co_await writer_.finish();
  if (takes_time && client_.is_proven()) disarm();
  co_return is_written;
}

// Refuses a request. The connection ends, since the body of the request was not read.
net::Task<Session::Read> Session::refuse(Reply reply) {
  is_signed_ = false;
  core_->monitor.count("refused", reply.status);
  begin_reply(std::move(reply), false);
  co_await finish_reply();
  co_return Read::kRefused;
}

// Reads and drops the bytes that a refused client still sends. Closing at once would reset the
// connection, and the client would lose the reply.
net::Task<void> Session::drain() {
  socket_.shutdown_send();
  arm(kDrain);
  for (;;) {
    begin_ = end_ = 0;
    const bool filled = co_await fill();
    if (!filled) co_return;
  }
}

void ReplyWriter::begin(Reply reply, Head head, bool is_held_back) {
  // Make a temporary, since clang 14 rejects emplace() with the fields of an aggregate.
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
