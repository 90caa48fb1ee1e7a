#include "mpi/ending.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string_view>
#include <thread>

#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::mpi {
namespace {

// Time for MPI_Finalize to end after the last other rank has arrived.
constexpr std::chrono::milliseconds kGrace{100};
constexpr std::chrono::milliseconds kNoTime{0};
constexpr std::string_view kHere = "cmd=barrier_in\n";
constexpr std::string_view kLeaves = "cmd=finalize\n";

bool uses_processor(pthread_t thread) {
  clockid_t clock{};
  timespec before{}, after{};
  if (::pthread_getcpuclockid(thread, &clock) != 0) return false;
  ::clock_gettime(clock, &before);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ::clock_gettime(clock, &after);
  const int64_t seconds = after.tv_sec - before.tv_sec;
  return seconds * 1'000'000'000 + after.tv_nsec - before.tv_nsec > 1'000'000;
}

bool is_ready(int fd, int milliseconds) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, milliseconds) > 0;
}

// Passes bytes from one descriptor to the other. Returns whether any arrived.
bool pass(int from, int to) {
  char text[4096];
  const ssize_t size = ::read(from, text, sizeof text);
  return size > 0 && ::send(to, text, static_cast<size_t>(size), MSG_NOSIGNAL) == size;
}

// A proxy between MPI_Finalize and hydra's server. The proxy can send this rank's barrier message to the
// server in place of MPI_Finalize. The reply comes when all ranks have sent their messages, maybe after hours.
class FinalizeProxy {
 public:
  // `fd`: the server's descriptor for MPI_Finalize, which has not been called yet.
  explicit FinalizeProxy(int fd) : server_(::dup(fd)) {
    int both[2];
    if (!server_ || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) return;
    own_.reset(both[0]);
    is_between_ = ::dup2(both[1], fd) == fd;
    ::close(both[1]);
  }
  bool is_between() const { return is_between_; }
  // Returns true if MPI_Finalize sends bytes within this time, or closes its end.
  bool has_input(std::chrono::milliseconds time) const {
    return is_ready(own_.get(), static_cast<int>(time.count()));
  }
  // Passes messages in both directions, until one end is closed.
  void relay() const {
    for (;;) {
      pollfd both[] = {{server_.get(), POLLIN, 0}, {own_.get(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0) continue;
      if (both[0].revents != 0 && !pass(server_.get(), own_.get())) return;
      if (both[1].revents != 0 && !pass(own_.get(), server_.get())) return;
    }
  }
  // Returns true if all ranks are at the barrier, but MPI_Finalize is still closing connections and has sent nothing.
  bool is_hung() const {
    if (!send(kHere)) return false;
    bool has_come = false;
    for (;;) {
      pollfd both[] = {{server_.get(), POLLIN, 0}, {has_come ? -1 : own_.get(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0) continue;
      char text[64];
      if (both[1].revents != 0) {  // drop MPI_Finalize's message: the server has one
        if (::read(own_.get(), text, sizeof text) <= 0) return false;
        has_come = true;
      }
      if (both[0].revents == 0) continue;
      const ssize_t size = ::read(server_.get(), text, sizeof text);
      if (size <= 0) return false;
      if (!has_come) {
        if (!has_input(kGrace)) return true;
        char word[64];
        if (::read(own_.get(), word, sizeof word) <= 0) return false;
      }
      if (::send(own_.get(), text, static_cast<size_t>(size), MSG_NOSIGNAL) == size) relay();
      return false;
    }
  }
  // Announces the end of this process; otherwise a server treats its exit as a failure.
  void take_leave() const {
    char text[64];
    if (send(kLeaves)) static_cast<void>(::read(server_.get(), text, sizeof text));
  }

 private:
  bool send(std::string_view word) const {
    return ::send(server_.get(), word.data(), word.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(word.size());
  }

  UniqueFd server_, own_;
  bool is_between_ = false;
};

// An MPICH rank that has closed its connections sleeps until all ranks have closed theirs, and does not poll.
// A rank whose connection to the sleeping rank was incomplete then waits forever: seen over TCP with MPICH 4.0
// and UCX 1.13, also in programs without Horovod. watch() then ends the process without MPI_Finalize.
void watch(pthread_t ending, const std::atomic<bool>& has_ended, const FinalizeProxy& proxy,
           int status, std::chrono::milliseconds usual) {
  // MPI_Finalize sends its first message after its connections have ended.
  bool is_through = proxy.has_input(usual);
  while (!is_through && !has_ended && !uses_processor(ending))
    is_through = proxy.has_input(kNoTime);
  if (is_through) return proxy.relay();
  if (has_ended || !proxy.is_hung()) return;
  std::fprintf(stderr,
               "horovod: MPI_Finalize does not end though all ranks are there, as happens to MPICH "
               "over TCP between hosts; this process ends without it\n");
  std::fflush(nullptr);
  proxy.take_leave();
  ::_exit(status);
}

}  // namespace

void end_mpi(int (*finalize)(), bool may_never_end, int status, std::chrono::milliseconds usual) {
  const auto server = parse_int(environment_variable("PMI_FD").value_or(""));
  const auto has_ended = std::make_shared<std::atomic<bool>>(false);
  if (may_never_end && server) {
    const auto proxy = std::make_shared<const FinalizeProxy>(static_cast<int>(*server));
    if (proxy->is_between()) {
      std::thread([=, ending = ::pthread_self()] {
        watch(ending, *has_ended, *proxy, status, usual);
      }).detach();
    }
  }
  finalize();
  *has_ended = true;
}

}  // namespace hvd::mpi
