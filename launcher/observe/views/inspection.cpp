#include "launcher/observe/views/inspection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/protocol/record.h"
#include "net/endpoint.h"
#include "net/packet_socket.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxRequest = 4 << 20;
constexpr size_t kPieceOfRequest = 4096;
// The pause after a failed accept, for example if no descriptor is free.
constexpr std::chrono::milliseconds kPause{500};

}  // namespace

net::Task<std::vector<HostAnswer>> Inspection::ask(std::vector<size_t> hosts, Question question,
                                                   std::chrono::milliseconds limit) {
  const size_t all = hosts_.hosts().size();
  Open open{++last_, std::vector<HostAnswer>(all), std::vector<bool>(all), 0,
            net::asio::steady_timer(executor_, limit)};
  const Message message = question(open.number);
  for (const size_t host : hosts) {
    open.is_open[host] = send_(host, message);
    if (open.is_open[host]) ++open.left;
  }
  const auto questions = open_;
  questions->push_back(&open);
  if (open.left > 0) co_await open.answered.async_wait(net::use_tuple);
  std::erase(*questions, &open);
  co_return std::move(open.answers);
}

net::Task<std::vector<HostAnswer>> Inspection::ask_all(Question question,
                                                       std::chrono::milliseconds limit) {
  std::vector<size_t> all(hosts_.hosts().size());
  std::iota(all.begin(), all.end(), size_t{0});
  co_return co_await ask(std::move(all), std::move(question), limit);
}

net::Task<HostAnswer> Inspection::ask(size_t host, Question question) {
  std::vector<HostAnswer> answers =
      co_await ask(std::vector<size_t>(1, host), std::move(question), kInspectionTime);
  co_return std::move(answers[host]);
}

void Inspection::on_answer(size_t host, uint32_t number, HostAnswer answer) {
  if (!is_possible(answer.sample)) answer.sample = {};
  const auto found = std::ranges::find(*open_, number, &Open::number);
  if (found == open_->end()) {
    if (!answer.sample.metrics.empty()) late_(host, std::move(answer));
    return;
  }
  Open& open = **found;
  // Ignore an answer from a host that was not asked, or that has answered already.
  if (host >= open.is_open.size() || !open.is_open[host]) return;
  open.answers[host] = std::move(answer);
  close(open, host);
}

void Inspection::give_up(size_t host) {
  for (Open* open : *open_) close(*open, host);
}

void Inspection::close(Open& open, size_t host) {
  if (host >= open.is_open.size() || !open.is_open[host]) return;
  open.is_open[host] = false;
  if (--open.left == 0) open.answered.cancel();
}

class InspectionServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(net::asio::any_io_executor executor, UniqueFd listener, Answer answer)
      : executor_(executor),
        listener_(executor, listener.release()),
        pause_(executor),
        answer_(std::move(answer)) {}

  void close() {
    net::error_code ignored;
    listener_.close(ignored);
    pause_.cancel();
  }

  void wait() {
    listener_.async_wait(net::asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](const net::error_code& error) {
                           if (error) return;
                           if (self->accept()) return self->wait();
                           self->pause_.expires_after(kPause);
                           self->pause_.async_wait([self](const net::error_code& ended) {
                             if (!ended) self->wait();
                           });
                         });
  }

 private:
  // Returns false if accept(2) failed.
  bool accept() {
    UniqueFd fd(
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return false;
    if (!net::is_trusted_peer(fd.get())) return true;
    net::StreamSocket socket(executor_);
    net::error_code error;
    socket.assign(net::asio::generic::stream_protocol(AF_UNIX, 0), fd.get(), error);
    if (error) return true;
    static_cast<void>(fd.release());
    net::asio::co_spawn(executor_, serve(shared_from_this(), std::move(socket)),
                        net::asio::detached);
    return true;
  }

  static net::Task<void> serve(std::shared_ptr<Impl> self, net::StreamSocket socket) {
    std::string request;
    std::array<char, kPieceOfRequest> buffer;
    while (request.size() < kMaxRequest && request.find('\n') == std::string::npos) {
      const auto [error, size] =
          co_await socket.async_read_some(net::asio::buffer(buffer), net::use_tuple);
      if (error) co_return;
      request.append(buffer.data(), size);
    }
    co_await self->answer_(request.substr(0, request.find('\n')), socket);
  }

  net::asio::any_io_executor executor_;
  net::asio::posix::stream_descriptor listener_;
  net::asio::steady_timer pause_;
  Answer answer_;
};

Result<std::unique_ptr<InspectionServer>> InspectionServer::open(
    net::asio::any_io_executor executor, Answer answer) {
  const std::string name = cat("unix:@", inspection_prefix(), ::getpid(), "/", random_hex(16));
  HVD_ASSIGN_OR_RETURN(const net::Endpoint endpoint, net::parse_endpoint(name));
  HVD_ASSIGN_OR_RETURN(UniqueFd listener, net::listen_on(*net::numeric_address(endpoint)));
  const auto impl = std::make_shared<Impl>(executor, std::move(listener), std::move(answer));
  impl->wait();
  return std::unique_ptr<InspectionServer>(new InspectionServer(impl));
}

InspectionServer::~InspectionServer() { impl_->close(); }

net::Task<bool> send_record(net::StreamSocket& caller, const Message& message) {
  const Bytes record = to_record(message);
  const auto [error, written] =
      co_await net::asio::async_write(caller, net::asio::buffer(record), net::use_tuple);
  co_return !error;
}

std::string inspection_prefix() { return cat("horovodrun/", ::geteuid(), "/"); }

}  // namespace hvd::launcher
