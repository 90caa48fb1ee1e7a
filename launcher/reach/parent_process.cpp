#include "launcher/reach/parent_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"

namespace hvd::launcher {
namespace {

int socket_option(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

Result<std::unique_ptr<ParentProcess>> ParentProcess::take(int fd) {
  if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_STREAM) {
    return invalid_argument(cat("--store-fd ", fd,
                                " is not a Unix stream socket that this launcher "
                                "inherited; only the program that starts the launcher sets it"));
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::unique_ptr<ParentProcess>(new ParentProcess(UniqueFd(fd)));
}

void ParentProcess::serve(net::asio::any_io_executor executor, const Secret& secret,
                          const Secret& results, rendezvous::Server& server,
                          std::function<void()> on_gone) {
  const std::string line = cat(secret.hex(), " ", results.hex(), "\n");
  // The send buffer is empty, because these are the socket's first bytes.
  if (::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return on_gone();
  }
  watched_.emplace(executor, ::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  watched_->async_wait(net::asio::posix::stream_descriptor::wait_error,
                       [gone = std::move(on_gone)](const net::error_code& error) {
                         if (!error) gone();
                       });
  net::StreamSocket socket(executor, net::asio::generic::stream_protocol(AF_UNIX, 0),
                           socket_.release());
  server.adopt(std::move(socket));
}

}  // namespace hvd::launcher
