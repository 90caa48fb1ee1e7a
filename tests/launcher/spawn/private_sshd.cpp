#include "tests/launcher/spawn/private_sshd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/proc_file.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr char kSshd[] = "/usr/sbin/sshd";

// Returns the sshd processes of all objects in this test.
std::set<pid_t>& running() {
  static std::set<pid_t> pids;
  return pids;
}

bool has_other_children() {
  const std::string parent = cat("\nPPid:\t", ::getpid(), "\n");
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid || running().contains(static_cast<pid_t>(*pid))) continue;
    if (read_proc_file(entry.path() / "status").find(parent) != std::string::npos) return true;
  }
  return false;
}

int spawn_program(std::vector<std::string> arguments, int error_output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (error_output >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, error_output, STDERR_FILENO);
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

int free_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  const int pid = spawn_program(arguments, -1);
  if (pid < 0) return -1;
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string why_no_sshd() {
  if (::access(kSshd, X_OK) != 0) return "/usr/sbin/sshd is missing (package openssh-server)";
  // sshd requires this directory when root starts it.
  if (::geteuid() == 0 && ::mkdir("/run/sshd", 0755) != 0 && errno != EEXIST) {
    return "/run/sshd cannot be made";
  }
  return {};
}

PrivateSshd::PrivateSshd(const std::vector<std::string>& options) {
  for (const char* key : {"host_key", "id"}) {
    REQUIRE(run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key)}) == 0);
  }
  std::filesystem::copy_file(path("id.pub"), path("authorized_keys"));
  std::filesystem::create_directories(path("home/.ssh"));
  std::ofstream(path("known_hosts"));
  for (int attempt = 0; attempt < 5; ++attempt) {
    port_ = free_port();
    if (start(options)) return;
  }
  FAIL("sshd does not start");
}

bool PrivateSshd::start(const std::vector<std::string>& options) {
  std::string config;
  for (const std::string& line : options) config += line + "\n";
  config += cat(
      "Port ", port_, "\nListenAddress 127.0.0.1\nHostKey ", path("host_key"),
      "\nAuthorizedKeysFile ", path("authorized_keys"),
      "\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 200\nLoginGraceTime 10\n"
      // SHLVL keeps bash from reading ~/.bashrc.
      "SetEnv SHLVL=1 HOME=",
      path("home"), "\n");
  const std::string file = scratch_.write("sshd_config", config);
  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  const UniqueFd from(pipe[0]);
  UniqueFd to(pipe[1]);
  pid_ = spawn_program({kSshd, "-D", "-e", "-f", file}, to.get());
  REQUIRE(pid_ > 0);
  running().insert(pid_);
  to.reset();
  std::string text;
  std::array<char, 512> buffer;
  for (ssize_t size; (size = ::read(from.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(size));
    if (text.find("Server listening") != std::string::npos) return true;
  }
  ::waitpid(pid_, nullptr, 0);
  running().erase(pid_);
  pid_ = -1;
  MESSAGE(text);
  return false;
}

PrivateSshd::~PrivateSshd() {
  if (pid_ <= 0) return;
  // Commands of sshd sessions may still run and create the folders again. As the sessions end,
  // this process becomes the parent of these commands and waits for them.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::kill(pid_, SIGTERM);
  running().erase(pid_);
  const Deadline deadline = Deadline::after_seconds(200);
  while (has_other_children() && !deadline.passed()) {
    if (::waitpid(-1, nullptr, WNOHANG) <= 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

SshUser PrivateSshd::user(const std::vector<std::string>& lines) {
  SshUser user = SshUser::current();
  user.home = path("home");
  user.directory = path("home/.ssh");
  std::string config;
  for (const std::string& line : lines) config += line + "\n";
  config += cat("Host *\n  Port ", port_, "\n  IdentityFile ", path("id"),
                "\n  IdentityAgent none\n  UserKnownHostsFile ", path("known_hosts"), "\n");
  scratch_.write("home/.ssh/config", config);
  return user;
}

SpawnTarget PrivateSshd::target(const std::string& agent_script) {
  SpawnTarget target;
  target.host = "127.0.0.1";
  target.agent_path = scratch_.write("agent", "#!/bin/sh\n" + agent_script + "\n", true);
  target.agent_dir = path("agents");
  return target;
}

std::string PrivateSshd::known_hosts_line() const {
  std::ifstream in(path("host_key.pub"));
  std::string type, key;
  in >> type >> key;
  return cat("[127.0.0.1]:", port_, " ", type, " ", key, "\n");
}

}  // namespace hvd::launcher
