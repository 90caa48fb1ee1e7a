#include "launcher/reach/job_store.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {
namespace {

int socket_option(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

JobStore::JobStore(net::asio::any_io_executor executor, const LaunchSettings& settings,
                   const HostTable& hosts)
    : executor_(std::move(executor)), settings_(settings), hosts_(hosts) {}

Status JobStore::take_parent() {
  if (!settings_.job.store_fd.has_value()) return {};
  const int fd = static_cast<int>(*settings_.job.store_fd);
  if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_STREAM) {
    return invalid_argument(cat("--store-fd ", fd,
                                " is not a Unix stream socket that this launcher "
                                "inherited; only the program that starts the launcher sets it"));
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  parent_ = UniqueFd(fd);
  return {};
}

void JobStore::open(std::unique_ptr<rendezvous::Server> joined, const Secret& secret,
                    const Secret& results, std::function<void()> on_parent_gone) {
  server_ = std::move(joined);
  if (!server_) {
    server_ = std::make_unique<rendezvous::Server>(
        executor_,
        rendezvous::ServerOptions{
            .secret = secret, .size = hosts_.size(), .insecure_compat = original_scopes()});
  }
  if (parent_) serve_parent(secret, results, std::move(on_parent_gone));
}

void JobStore::serve_parent(const Secret& secret, const Secret& results,
                            std::function<void()> on_gone) {
  const std::string line = cat(secret.hex(), " ", results.hex(), "\n");
  // The send buffer is empty, because these are the socket's first bytes.
  if (::send(parent_.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return on_gone();
  }
  watched_parent_.emplace(executor_, ::fcntl(parent_.get(), F_DUPFD_CLOEXEC, 0));
  watched_parent_->async_wait(net::asio::posix::stream_descriptor::wait_error,
                              [gone = std::move(on_gone)](const net::error_code& error) {
                                if (!error) gone();
                              });
  net::StreamSocket socket(executor_, net::asio::generic::stream_protocol(AF_UNIX, 0),
                           parent_.release());
  server_->adopt(std::move(socket));
}

// Returns the scopes of the original Horovod's rendezvous, with their sizes; nothing without --insecure-compat.
std::optional<rendezvous::ScopeSizes> JobStore::original_scopes() const {
  if (!settings_.launchers.insecure_compat) return {};
  rendezvous::ScopeSizes sizes = {{"global", hosts_.size()}};
  for (const RankRun& rank : hosts_.ranks()) {
    sizes[cat("local_", rank.host().name())] = rank.slot().local_size;
    sizes[cat("cross_", rank.slot().local_rank)] = rank.slot().cross_size;
  }
  return sizes;
}

std::optional<std::pair<int, std::string>> JobStore::left_by(int rank) const {
  const auto value = server_ ? server_->value(rendezvous::left_by_key(rank)) : std::nullopt;
  if (!value) return {};
  const std::string_view text = as_text(*value);
  const size_t space = std::min(text.find(' '), text.size());
  const auto peer = parse_int(text.substr(0, space));
  if (!peer || !hosts_.has_rank(*peer)) return {};
  return std::pair(static_cast<int>(*peer),
                   space < text.size() ? printable(text.substr(space + 1)) : "");
}

}  // namespace hvd::launcher
