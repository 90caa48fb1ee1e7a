#include "launcher/agent/link/launcher_link.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/record.h"

namespace hvd::launcher {

namespace {

constexpr double kAnswerSeconds = 10;

constexpr const char* kClosed = "the launcher closed the connection";

constexpr size_t kReadChunk = 64 << 10;

}  // namespace

LauncherLink::LauncherLink(net::EventLoop& loop, OpenedLink opened,
                           std::function<void(ByteView)> on_bytes)
    : loop_(loop),
      stream_(opened.session.key),
      connection_(std::move(opened.connection)),
      wait_seconds_(opened.session.wait_seconds),
      redialler_(loop, std::move(opened.redial),
                 [this](Result<Returned> connection) { on_dialled(std::move(connection)); }),
      on_bytes_(std::move(on_bytes)),
      reattachment_(loop) {}

LauncherLink::~LauncherLink() { close(); }

Status LauncherLink::open() {
  if (!loop_.watch(connection_.input.get(), EPOLLIN, [this](uint32_t) { on_readable(); })) {
    return system_error("the agent's input is not a pipe, socket or terminal", errno);
  }
  if (connection_.cipher) take_deciphered();  // bytes that arrived with the opening
  return {};
}

void LauncherLink::survive(double lease_seconds, double silence_seconds) {
  if (redialler_) {
    survive_seconds_ = lease_seconds > 0 ? lease_seconds : kSurviveSeconds;
  } else if (wait_seconds_ > 0) {
    wait_for_reattachment();
    if (!reattachment_.is_listening()) return;
    survive_seconds_ = lease_seconds > 0 ? std::min(wait_seconds_, lease_seconds) : wait_seconds_;
  }
  lease_seconds_ = lease_seconds;
  replace_seconds_ = replace_link_after(silence_seconds);
  note_bytes();
}

void LauncherLink::expect_silence() {
  received_at_ = Clock::time_point::max();
  replace_at_ = Deadline::never();
}

void LauncherLink::note_bytes() {
  if (survive_seconds_ <= 0 || lease_seconds_ <= 0) return;
  received_at_ = Clock::now();
  if (!redialler_) return;
  redialler_.stop();
  replace_at_ = Deadline::after_seconds(replace_seconds_);
}

size_t LauncherLink::room() const { return is_connected() && is_written() ? stream_.room() : 0; }

void LauncherLink::send(ByteView bytes) { stream_.put(bytes); }

void LauncherLink::flush() {
  while (is_connected() && !is_waiting_) {
    if (written_ == unwritten_.size()) {
      unwritten_ = stream_.take();
      written_ = 0;
      if (unwritten_.empty()) return;
      if (connection_.cipher) {
        const Status status = connection_.cipher->write(unwritten_);
        unwritten_ = connection_.cipher->take_output();
        if (!status.ok()) return lose(status);
      }
    }
    const int fd = connection_.output.get();
    const ssize_t size = ::write(fd, unwritten_.data() + written_, unwritten_.size() - written_);
    if (size >= 0) {
      written_ += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      is_waiting_ = true;
      loop_.watch(fd, EPOLLOUT, [this, fd](uint32_t) {
        loop_.unwatch(fd);
        is_waiting_ = false;
        flush();
      });
    } else if (errno != EINTR) {
      lose(system_error("the connection to the launcher broke", errno));
    }
  }
}

bool LauncherLink::is_delivered() const {
  return survive_seconds_ > 0 ? stream_.is_acknowledged() : is_written();
}

void LauncherLink::on_readable() {
  std::array<std::byte, kReadChunk> buffer;
  const ssize_t size = ::read(connection_.input.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0) return lose(system_error("the connection to the launcher broke", errno));
  if (size == 0) return lose(unavailable(kClosed));
  const auto received = std::span(buffer).first(static_cast<size_t>(size));
  if (!connection_.cipher) return take(received);
  connection_.cipher->feed(received);
  take_deciphered();
}

void LauncherLink::take_deciphered() {
  std::array<std::byte, 16 << 10> buffer;
  while (is_connected()) {
    const auto size = connection_.cipher->read(buffer);
    if (!size.ok()) {
      // Send the TLS alert, which contains the reason for the launcher.
      const Bytes alert = connection_.cipher->take_output();
      (void)!::write(connection_.output.get(), alert.data(), alert.size());
      std::fprintf(stderr, "horovod-agent: the connection to the launcher ended: %s\n",
                   size.status().message().c_str());
      return lose(size.status());
    }
    if (!*size) return;
    if (**size == 0) return lose(unavailable(kClosed));
    take(std::span(buffer).first(**size));
  }
}

void LauncherLink::take(std::span<std::byte> bytes) {
  note_bytes();
  const auto size = stream_.receive(bytes);
  if (!size.ok()) return end(size.status());
  if (*size > 0) on_bytes_(ByteView(bytes).first(*size));
  if (is_connected() && stream_.has_ended()) end(aborted("the launcher ended the link"));
}

void LauncherLink::drop_connection() {
  if (!is_connected()) return;
  if (is_waiting_) loop_.unwatch(connection_.output.get());
  loop_.unwatch(connection_.input.get());
  connection_ = {};
  lifetime_fd_.reset();
  unwritten_.clear();
  written_ = 0;
  is_waiting_ = false;
  replace_at_ = Deadline::never();
  reattachment_.accept_again();
}

void LauncherLink::end(Status why) {
  if (state_.ok()) state_ = std::move(why);
  drop_connection();
  drop_offer();
  reattachment_.close();
  redialler_.stop();
  give_up_at_ = Deadline::never();
}

void LauncherLink::lose(Status why) {
  await_another(std::move(why));
  if (redialler_ && state_.ok()) redialler_.begin();
}

void LauncherLink::await_another(Status why) {
  if (survive_seconds_ <= 0 || stream_.has_ended()) return end(aborted(why.message()));
  drop_connection();
  why_ = std::move(why);
  // If the network is cut off, the launcher has not noticed the loss: wait for the rest of the lease.
  const double silence = std::chrono::duration<double>(Clock::now() - received_at_).count();
  const double left = silence >= kUnnoticedSeconds ? lease_seconds_ - silence : 0;
  give_up_at_ = Deadline::after_seconds(std::max(survive_seconds_, left));
}

void LauncherLink::close() {
  is_closed_ = true;
  if (is_connected()) {
    stream_.end();
    flush();
  }
  end(aborted("the agent ended the link"));
}

Deadline LauncherLink::deadline() const {
  return Deadline::at(std::min(
      {give_up_at_.time(), answer_by_.time(), replace_at_.time(), redialler_.deadline().time()}));
}

void LauncherLink::on_deadline() {
  if (give_up_at_.passed()) {
    return end(deadline_exceeded(
        cat(why_.message(), ", and the link did not resume within ", survive_seconds_, " s")));
  }
  if (answer_by_.passed()) drop_offer();
  if (replace_at_.passed()) {
    why_ = unavailable(cat("the launcher has sent nothing for ", replace_seconds_, " s"));
    replace_at_ = Deadline::never();
    redialler_.begin();
  }
  redialler_.on_deadline();
}

void LauncherLink::on_dialled(Result<Returned> connection) {
  if (connection.ok()) return offer(std::move(connection->connection), connection->challenge, {});
  end(unavailable(
      cat(why_.message(), ", and the launcher has ended: nothing listens at its port")));
}

void LauncherLink::wait_for_reattachment() {
  const Status status =
      reattachment_.listen(stream_.id(), [this](Returned returned, UniqueFd lifetime_fd) {
        offer(std::move(returned.connection), returned.challenge, std::move(lifetime_fd));
      });
  if (status.ok()) return;
  std::fprintf(stderr, "horovod-agent: the link to the launcher will not survive a reset: %s\n",
               status.message().c_str());
}

// Sends the offer to resume on a new connection. Closes an older connection first, because its late bytes
// would arrive twice.
void LauncherLink::offer(Link connection, const Nonce& challenge, UniqueFd lifetime_fd) {
  if (is_connected()) await_another(unavailable("another connection was opened"));
  drop_offer();
  Nonce own;
  fill_random(own);
  offered_ = std::make_unique<Offered>();
  offered_->connection = std::move(connection);
  offered_->challenge = challenge;
  offered_->offer = stream_.offer(challenge, own);
  offered_->lifetime_fd = std::move(lifetime_fd);
  Bytes frame = framed(offered_->offer);
  Link& link = offered_->connection;
  if (link.cipher) {
    const Status status = link.cipher->write(frame);
    frame = link.cipher->take_output();
    if (!status.ok()) return drop_offer();
  }
  // A new connection accepts a few hundred bytes immediately.
  const ssize_t size = ::write(link.output.get(), frame.data(), frame.size());
  if (size != static_cast<ssize_t>(frame.size())) return drop_offer();
  answer_by_ = Deadline::after_seconds(kAnswerSeconds);
  loop_.watch(link.input.get(), EPOLLIN, [this](uint32_t) { on_answer(); });
}

// Reads single bytes, so that the records after the answer remain in the connection.
void LauncherLink::on_answer() {
  Link& link = offered_->connection;
  std::byte byte{};
  if (!link.cipher) {
    for (;;) {
      const ssize_t size = ::read(link.input.get(), &byte, 1);
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (size <= 0) return drop_offer();
      if (!take_answer(byte)) return;
    }
  }
  std::array<std::byte, 16 << 10> buffer;
  const ssize_t size = ::read(link.input.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return drop_offer();
  link.cipher->feed(ByteView(buffer).first(static_cast<size_t>(size)));
  for (;;) {
    const auto read = link.cipher->read({&byte, 1});
    if (!read.ok() || *read == size_t{0}) return drop_offer();
    if (!*read || !take_answer(byte)) return;
  }
}

// Returns whether the answer needs more bytes.
bool LauncherLink::take_answer(std::byte byte) {
  offered_->parser.feed({&byte, 1});
  const auto frame = offered_->parser.next();
  if (frame.ok() && !*frame) return true;
  const auto message = frame.ok() ? decode((*frame)->payload) : frame.status();
  if (message.ok()) {
    if (const auto* refusal = std::get_if<Failed>(&*message)) {
      end(failed_precondition(cat("the launcher does not resume the link of this host: ",
                                  printable(refusal->sentence))));
      return false;
    }
    const auto* answer = std::get_if<Resumed>(&*message);
    if (answer != nullptr && stream_.confirm(offered_->offer, offered_->challenge, *answer).ok()) {
      adopt();
      return false;
    }
  }
  drop_offer();
  return false;
}

void LauncherLink::adopt() {
  drop_connection();
  const auto offered = std::exchange(offered_, nullptr);
  loop_.unwatch(offered->connection.input.get());
  connection_ = std::move(offered->connection);
  lifetime_fd_ = std::move(offered->lifetime_fd);
  has_moved_ = true;
  give_up_at_ = answer_by_ = Deadline::never();
  note_bytes();
  if (const Status status = open(); !status.ok()) lose(status);
}

void LauncherLink::drop_offer() {
  if (!offered_) return;
  answer_by_ = Deadline::never();
  const auto offered = std::exchange(offered_, nullptr);
  if (offered->connection.input) loop_.unwatch(offered->connection.input.get());
  reattachment_.accept_again();
  if (redialler_ && !is_connected() && state_.ok()) redialler_.continue_later();
}

}  // namespace hvd::launcher
