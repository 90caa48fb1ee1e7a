#include "rendezvous/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/unique_fd.h"

namespace hvd::rendezvous {

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "horovod-test-XXXXXX";
  HVD_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

uint16_t free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  HVD_CHECK(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  HVD_CHECK(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

Child::Child(const std::vector<std::string>& command, const std::filesystem::path& output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const UniqueFd file(::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  HVD_CHECK(file);
  pid_ = ::fork();
  HVD_CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  // The process also ends when the test itself is killed.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(file.get(), STDOUT_FILENO);
  ::dup2(file.get(), STDERR_FILENO);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

Child::~Child() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  join();
}

void Child::signal(int number) const { ::kill(pid_, number); }

int Child::join() {
  int status = 0;
  HVD_CHECK(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

bool Etcd::is_installed() { return ::access("/usr/bin/etcd", X_OK) == 0; }

Etcd::Etcd()
    : address_("127.0.0.1:" + std::to_string(free_port())),
      peer_("127.0.0.1:" + std::to_string(free_port())) {
  start();
}

void Etcd::kill() { child_.reset(); }

void Etcd::start() {
  child_ = std::make_unique<Child>(
      std::vector<std::string>{
          "/usr/bin/etcd", "--data-dir", folder_.path() / "data", "--listen-client-urls",
          "http://" + address_, "--advertise-client-urls", "http://" + address_,
          "--listen-peer-urls", "http://" + peer_, "--initial-advertise-peer-urls",
          "http://" + peer_, "--initial-cluster", "default=http://" + peer_},
      folder_.path() / "output");
}

}  // namespace hvd::rendezvous
