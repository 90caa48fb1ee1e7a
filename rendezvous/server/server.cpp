#include "rendezvous/server/server.h"

#include <fcntl.h>
#include <unistd.h>

#include <list>

#include "base/limits/descriptor_limit.h"
#include "base/log/log.h"
#include "base/text.h"
#include "net/resolve.h"
#include "rendezvous/server/session.h"

namespace hvd::rendezvous {
namespace {

namespace asio = net::asio;
using Protocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<Protocol>;

// Pause after a failed accept, for example while the process has no descriptor left.
constexpr std::chrono::milliseconds kPause{100};
// The time between two warnings about failed accepts.
constexpr std::chrono::seconds kBetweenWarnings{60};

ServerLimits within_descriptors(ServerLimits limits) {
  limits.unproven = descriptor_share(limits.unproven);
  return limits;
}

}  // namespace

class Server::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::any_io_executor executor, ServerOptions options)
      : executor_(std::move(executor)),
        core_(std::make_shared<ServerCore>(
            options.secret, Monitor::token(options.monitor_secret.value_or(options.secret)),
            options.size, within_descriptors(options.limits), options.open_monitor)),
        unsigned_at_ports_(options.insecure_compat_at_ports) {
    tls_ = std::move(options.tls);
    core_->agents_use_tls = tls_.has_value();
    if (options.insecure_compat) core_->unsigned_store.emplace(std::move(*options.insecure_compat));
  }

  Result<net::Endpoint> listen(const net::Endpoint& endpoint) {
    HVD_ASSIGN_OR_RETURN(const auto addresses, net::resolve_to_listen(endpoint));
    HVD_ASSIGN_OR_RETURN(UniqueFd fd, net::listen_on(addresses.front()));
    return listen(std::move(fd));
  }

  Result<net::Endpoint> listen(UniqueFd fd) {
    HVD_ASSIGN_OR_RETURN(const net::SocketAddress local, net::local_address(fd.get()));
    const net::Endpoint bound = net::to_endpoint(local);
    net::error_code error;
    Acceptor acceptor(executor_);
    acceptor.assign(Protocol(local.family(), 0), fd.get(), error);
    if (error) return net::to_status(cat("cannot listen on ", net::to_string(bound)), error);
    fd.release();
    if (bound.family == net::Endpoint::Family::kTcp) {
      port_ = bound.port;
    } else if (bound.path.front() == '/') {
      paths_.push_back(bound.path);
    }
    acceptors_.push_back(std::move(acceptor));
    asio::co_spawn(
        executor_,
        [self = shared_from_this(), &acceptor = acceptors_.back()] {
          return self->accept(acceptor);
        },
        asio::detached);
    return bound;
  }

  void adopt(net::AcceptedSocket socket, bool takes_unsigned) {
    if (core_->is_closing || core_->sessions.size() >= core_->limits.sessions) return;
    limit_unproven();
    const auto session = std::make_shared<Session>(core_, std::move(socket), takes_unsigned);
    core_->unproven.push_back(session);
    session->start();
  }

  Status resume(OpenedStore opened, std::function<void(Status)> on_lost) {
    core_->durable = std::move(opened.store);
    HVD_RETURN_IF_ERROR(core_->service.resume(opened.records, core_->durable.get()));
    core_->durable->on_lost([weak = weak_from_this(), on_lost = std::move(on_lost)](Status why) {
      if (const auto self = weak.lock()) self->hand_over();
      on_lost(std::move(why));
    });
    return {};
  }

  void close() {
    end(&Session::shut);
    if (core_->durable) core_->durable->end();
  }

  void hand_over() {
    if (core_->durable) core_->durable->stop();
    end(&Session::abandon);
  }

  Status set(std::string_view key, ByteView value) {
    return core_->service.state().set(key,
                                      std::make_shared<Value>(Value{to_bytes(as_text(value)), {}}));
  }

  void remove_all(std::string_view prefix) { core_->service.remove_all(prefix); }

  using OnKey = std::function<void(const std::string& key)>;
  void follow(std::string prefix, OnKey on_key) {
    const uint64_t revision = core_->service.state().revision();
    follow_from(revision, std::make_shared<const std::string>(std::move(prefix)),
                std::make_shared<const OnKey>(std::move(on_key)));
  }

  uint16_t port() const { return port_; }
  ServerCore& core() { return *core_; }

 private:
  // A callback of StoreState must not call back into it, so the next wait begins in a separate call. No
  // change is missed meanwhile, because each wait begins at a revision.
  void follow_from(uint64_t revision, const std::shared_ptr<const std::string>& prefix,
                   const std::shared_ptr<const OnKey>& on_key) {
    const auto take = [weak = weak_from_this(), prefix, on_key](const Changes& changes) {
      const auto self = weak.lock();
      if (!self) return;
      asio::post(self->executor_, [weak, prefix, on_key, changes] {
        const auto self = weak.lock();
        if (!self || self->core_->is_closing) return;
        self->follow_from(changes.revision, prefix, on_key);
        for (const auto& change : changes.changes) {
          if (!change.removed) (*on_key)(change.key);
        }
      });
    };
    std::optional<StoreState::Ticket> ticket;
    const auto changes = core_->service.state().watch(*prefix, revision, take, &ticket);
    if (changes.ok() && !ticket) take(*changes);
  }

  void end(void (Session::*how)()) {
    if (std::exchange(core_->is_closing, true)) return;
    core_->on_agent = nullptr;
    for (Acceptor& acceptor : acceptors_) {
      net::error_code ignored;
      acceptor.close(ignored);
    }
    for (const std::string& path : paths_) ::unlink(path.c_str());
    // A session that ends removes itself from the set: iterate over a copy.
    std::vector<std::shared_ptr<Session>> sessions;
    for (Session* session : core_->sessions) sessions.push_back(session->shared_from_this());
    for (const auto& session : sessions) ((*session).*how)();
  }

  // If too many clients have not proven the secret, ends the oldest of their sessions, which has had the most time.
  void limit_unproven() {
    auto& unproven = core_->unproven;
    std::erase_if(unproven, [](const std::weak_ptr<Session>& weak) {
      const auto session = weak.lock();
      return !session || session->is_proven();
    });
    if (unproven.size() < core_->limits.unproven) return;
    if (const auto oldest = unproven.front().lock()) oldest->close();
    unproven.pop_front();
  }

  void warn_of(const net::error_code& error) {
    if (Clock::now() < next_warning_) return;
    next_warning_ = Clock::now() + kBetweenWarnings;
    const Status why =
        system_error("the rendezvous server cannot take a connection", error.value());
    log::warning(why.message());
  }

  void take_tls(net::StreamSocket socket) {
    tls_->take(std::move(socket), [weak = weak_from_this()](net::AcceptedSocket accepted) {
      if (const auto self = weak.lock()) self->adopt(std::move(accepted), self->unsigned_at_ports_);
    });
  }

  net::Task<void> accept(Acceptor& acceptor) {
    asio::steady_timer pause(executor_);
    while (acceptor.is_open()) {
      auto [error, socket] = co_await acceptor.async_accept(net::use_tuple);
      if (!error) {
        // A program that runs this server (rank 0 may) must not pass the socket to its children.
        ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
        net::tune_connection(socket.native_handle());
        if (tls_)
          take_tls(std::move(socket));
        else
          adopt(std::move(socket), unsigned_at_ports_);
      } else if (acceptor.is_open() && error != asio::error::connection_aborted) {
        warn_of(error);
        pause.expires_after(kPause);
        co_await pause.async_wait(net::use_tuple);
      }
    }
  }

  asio::any_io_executor executor_;
  std::shared_ptr<ServerCore> core_;
  const bool unsigned_at_ports_;
  Clock::time_point next_warning_ = Clock::time_point::min();
  std::optional<net::TlsFront> tls_;
  std::list<Acceptor> acceptors_;
  std::vector<std::string> paths_;
  uint16_t port_ = 0;
};

Server::Server(asio::any_io_executor executor, ServerOptions options)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(options))) {}

Server::~Server() { close(); }

Result<net::Endpoint> Server::listen(const net::Endpoint& endpoint) {
  return impl_->listen(endpoint);
}
Result<net::Endpoint> Server::listen(UniqueFd listener) {
  return impl_->listen(std::move(listener));
}
uint16_t Server::port() const { return impl_->port(); }
void Server::adopt(net::StreamSocket socket) { impl_->adopt(std::move(socket), true); }
Status Server::resume(OpenedStore opened, std::function<void(Status)> on_lost) {
  return impl_->resume(std::move(opened), std::move(on_lost));
}
void Server::on_agent(std::function<void(net::AcceptedSocket)> take) {
  impl_->core().on_agent = std::move(take);
}
void Server::show_hosts(int size, std::vector<JoinedHost> hosts) {
  impl_->core().monitor.show_hosts(size, std::move(hosts));
}
void Server::show_launch(std::function<std::string()> hosts) {
  impl_->core().monitor.show_launch(std::move(hosts));
}
void Server::close() { impl_->close(); }
void Server::hand_over() { impl_->hand_over(); }
Status Server::set(std::string_view key, ByteView value) { return impl_->set(key, value); }
void Server::remove_all(std::string_view prefix) { impl_->remove_all(prefix); }
void Server::on_change(std::string prefix, std::function<void(const std::string& key)> on_key) {
  impl_->follow(std::move(prefix), std::move(on_key));
}
std::optional<Bytes> Server::value(std::string_view key) const {
  const ValuePtr value = impl_->core().service.state().get(key);
  if (!value) return {};
  return value->bytes;
}
size_t Server::session_count() const { return impl_->core().sessions.size(); }
size_t Server::waiter_count() const { return impl_->core().service.waiter_count(); }

Result<net::Endpoint> listen_at(Server& server, const std::string& where,
                                const std::string& port_range) {
  const bool is_full = where.starts_with("unix:") || where.starts_with("tcp:");
  auto endpoint = net::parse_endpoint(is_full ? where : "tcp:" + where);
  if (!endpoint.ok()) return endpoint.status().with_context("--listen");
  if (port_range.empty() || endpoint->family != net::Endpoint::Family::kTcp) {
    return server.listen(*endpoint);
  }
  HVD_ASSIGN_OR_RETURN(const net::PortRange range, net::parse_port_range(port_range));
  Status last;
  for (int port = range.first; port <= range.last; ++port) {
    endpoint->port = static_cast<uint16_t>(port);
    auto bound = server.listen(*endpoint);
    if (bound.ok()) return bound;
    last = bound.status();
  }
  return Status(last.code(), cat("no port from ", port_range, " is free (the last: ",
                                 last.message(), "); give another --port-range"));
}

}  // namespace hvd::rendezvous
