#include "base/platform_calls.h"

#include <sys/syscall.h>

#include <utility>

namespace hvd {
namespace {

constexpr std::pair<long, std::string_view> kCalls[] = {
// 64-bit ARM and newer architectures lack these calls and use others of this list.
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
#endif
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_futex, "futex"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_accept, "accept"},
    {SYS_connect, "connect"},
    {SYS_openat, "openat"},
    {SYS_fsync, "fsync"},
    {SYS_flock, "flock"},
};

}  // namespace

std::string_view waiting_call(long number) {
  for (const auto& [call, name] : kCalls) {
    if (call == number) return name;
  }
  return {};
}

}  // namespace hvd
