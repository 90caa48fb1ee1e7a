// One end of a plain TCP connection whose ends both send and receive at full speed, to measure the
// link between two hosts without a reduction.
//
//   stream_worker SOCKET RANK SIZE FOLDER INTERFACE     rank 0 writes its address to FOLDER
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>

#include <fstream>

#include "worker.h"

namespace {

in_addr address_of(const char* interface) {
  ifaddrs* all = nullptr;
  ::getifaddrs(&all);
  in_addr found{};
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
        std::strcmp(one->ifa_name, interface) == 0) {
      found = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    }
  }
  ::freeifaddrs(all);
  return found;
}

// Makes the FIFO through which both ends meet: opening it waits for the other end.
std::string pipe_in(const std::string& folder) {
  const std::string path = folder + "/address";
  ::mkfifo(path.c_str(), 0600);  // the first end makes the FIFO
  return path;
}

int accept_one(const std::string& folder, const char* interface) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = address_of(interface);
  socklen_t size = sizeof(address);
  ::bind(listener, reinterpret_cast<sockaddr*>(&address), size);
  ::listen(listener, 1);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::ofstream(pipe_in(folder)) << ::inet_ntoa(address.sin_addr) << ' ' << ntohs(address.sin_port);
  return ::accept(listener, nullptr, nullptr);
}

int connect_one(const std::string& folder) {
  std::string host;
  int port = 0;
  std::ifstream(pipe_in(folder)) >> host >> port;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_aton(host.c_str(), &address.sin_addr);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  return fd;
}

// Sends `bytes` and receives as many bytes at the same time.
void exchange(int fd, const char* out, char* in, size_t bytes) {
  size_t sent = 0;
  size_t received = 0;
  while (sent < bytes || received < bytes) {
    bool moved = false;
    if (sent < bytes) {
      const ssize_t n = ::send(fd, out + sent, bytes - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<size_t>(n);
      moved = n > 0;
    }
    if (received < bytes) {
      const ssize_t n = ::recv(fd, in + received, bytes - received, 0);
      if (n == 0) throw std::runtime_error("the other end is gone");
      if (n > 0) received += static_cast<size_t>(n);
      moved = moved || n > 0;
    }
    if (moved) continue;
    pollfd waiting{fd, POLLIN, 0};
    if (sent < bytes) waiting.events |= POLLOUT;
    ::poll(&waiting, 1, -1);
  }
}

}  // namespace

int main(int, char** argv) {
  const int rank = std::atoi(argv[2]);
  const int fd = rank == 0 ? accept_one(argv[4], argv[5]) : connect_one(argv[4]);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  bench::serve(argv[1], rank, {{"allreduce", [&](const bench::Words& words) {
                                  const size_t bytes = std::stoull(words.at(0));
                                  std::vector<char> out(bytes, 'x');
                                  std::vector<char> in(bytes);
                                  return std::vector<double>{bench::median_us(
                                      std::stoi(words.at(1)),
                                      [&] { exchange(fd, out.data(), in.data(), bytes); })};
                                }}});
  return 0;
}
