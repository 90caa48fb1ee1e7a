#include "bootstrap/pmi/goodbye.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace hvd::bootstrap {
namespace {

constexpr int kAnswerMs = 1000;

struct Goodbye {
  int fd = -1;
  ino_t socket = 0;
  pid_t process = 0;  // not its forked children

  Goodbye() = default;
  Goodbye(const Goodbye&) = delete;
  Goodbye& operator=(const Goodbye&) = delete;
  ~Goodbye() {
    struct stat info {};
    if (process != ::getpid() || ::fstat(fd, &info) != 0 || info.st_ino != socket) return;
    constexpr std::string_view kWord = "cmd=finalize\n";
    if (::send(fd, kWord.data(), kWord.size(), MSG_NOSIGNAL) < 0) return;
    char answer[64];
    pollfd readable{fd, POLLIN, 0};
    if (::poll(&readable, 1, kAnswerMs) > 0) (void)!::read(fd, answer, sizeof answer);
  }
};

}  // namespace

void send_goodbye_at_exit(int fd) {
  static Goodbye goodbye;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  goodbye.fd = fd;
  goodbye.socket = info.st_ino;
  goodbye.process = ::getpid();
}

}  // namespace hvd::bootstrap
