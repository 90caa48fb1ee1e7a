// Hosts for benchmarks: network namespaces of forked processes, joined by a bridge. They end with
// the processes and leave the machine unchanged. Needs root. HVD_BENCH_RATE limits each host's
// sending, in a unit of tc: 1gbit.
#pragma once

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"

namespace hvd::bench {

inline void shell(const std::string& command) {
  if (std::system(command.c_str()) == 0) return;
  std::fprintf(stderr, "failed: %s\n", command.c_str());
  std::exit(1);
}

// Lives in the process that forks the ranks; makes a network namespace with the bridge.
class NetHosts {
 public:
  explicit NetHosts(int count) {
    if (::unshare(CLONE_NEWNET) != 0) {
      std::perror("only root makes network namespaces");
      std::exit(1);
    }
    shell("ip link add br0 type bridge && ip link set br0 up");
    for (int host = 0; host < count; ++host) holders_.push_back(hold(host));
  }
  ~NetHosts() {
    // Close all pipes first: each holder inherited the pipes of the holders before it.
    for (const Holder& holder : holders_) ::close(holder.pipe);
    for (const Holder& holder : holders_) ::waitpid(holder.pid, nullptr, 0);
  }
  // Moves the calling process, a forked rank, to a host.
  void enter(int host) const {
    const std::string path = cat("/proc/", holders_[static_cast<size_t>(host)].pid, "/ns/net");
    FILE* space = std::fopen(path.c_str(), "r");
    if (space == nullptr || ::setns(::fileno(space), CLONE_NEWNET) != 0) std::exit(1);
    std::fclose(space);
  }
  static std::string address(int host) { return cat("10.77.1.", host + 1); }

 private:
  struct Holder {
    pid_t pid;
    int pipe;
  };
  static Holder hold(int host) {
    int up[2], down[2];
    if (::pipe(up) != 0 || ::pipe(down) != 0) std::exit(1);
    const pid_t pid = ::fork();
    char byte = 0;
    if (pid == 0) {
      ::close(down[1]);
      if (::unshare(CLONE_NEWNET) != 0) std::exit(1);
      [[maybe_unused]] ssize_t done = ::write(up[1], &byte, 1);
      done = ::read(down[0], &byte, 1);  // until the parent closes its end
      ::_exit(0);
    }
    ::close(up[1]);
    ::close(down[0]);
    [[maybe_unused]] const ssize_t got = ::read(up[0], &byte, 1);
    ::close(up[0]);
    shell(cat("ip link add veth", host, " type veth peer name eth0 netns ", pid,
              " && ip link set veth", host, " master br0 up"));
    shell(cat("nsenter -t ", pid, " -n sh -c 'ip link set lo up && ip addr add ", address(host),
              "/24 dev eth0 && ip link set eth0 up'"));
    if (const char* rate = std::getenv("HVD_BENCH_RATE")) {
      shell(cat("nsenter -t ", pid, " -n tc qdisc add dev eth0 root tbf rate ", rate,
                " burst 512kb limit 4mb"));
    }
    return {pid, down[1]};
  }
  std::vector<Holder> holders_;
};

}  // namespace hvd::bench
