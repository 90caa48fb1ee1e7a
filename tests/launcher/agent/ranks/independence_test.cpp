#include "launcher/agent/ranks/independence.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/proc_file.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/agent/host/library_users.h"
#include "net/event_loop.h"

namespace hvd::launcher {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/library-users-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  // Maps an empty file with this name into this process.
  void map(const char* name) const {
    const UniqueFd file(::open(cat(path_, "/", name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (::ftruncate(file.get(), 4096) != 0) std::abort();
    ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0);
  }
  std::string write(const char* name, const std::string& text) const {
    const std::string path = cat(path_, "/", name);
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::string path_;
};

// A server that listens and accepts no connection.
class Server {
 public:
  Server() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address_), size) == 0);
    REQUIRE(::listen(socket_.get(), 8) == 0);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address_), &size);
  }
  int connect() const {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::connect(client, reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
    return client;
  }
  int accept() const { return ::accept(socket_.get(), nullptr, nullptr); }

 private:
  UniqueFd socket_;
  sockaddr_in address_{};
};

// A child that calls `work` and then waits.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(60);
      work();
      ::close(ends[0]);
      if (::write(ends[1], "", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char byte;
    REQUIRE(::read(ends[0], &byte, 1) == 1);
    ::close(ends[0]);
  }
  ~Child() { end(); }
  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

}  // namespace

TEST_CASE("each program with a library is looked at") {
  const Folder folder;
  const Server server;
  LibraryUsers users;
  const Child shell([] {});
  CHECK(users.look().library == 0);
  Child preparation([&] { folder.map("libtorch_cpu.so"); });
  auto look = users.look();
  CHECK(look.library == 2);
  CHECK(look.is_new);
  CHECK_FALSE(look.is_connected);
  CHECK_FALSE(users.look().is_new);
  SUBCASE("after the first has ended") { preparation.end(); }
  SUBCASE("while the first runs") {}
  const Child training([&] {
    folder.map("libtorch_cpu.so");
    server.connect();
  });
  look = users.look();
  CHECK(look.library == 2);
  CHECK(look.is_new);
  CHECK(look.is_connected);
}

TEST_CASE("a program that loads its library later is looked at again") {
  const Folder folder;
  static const Folder* in;
  in = &folder;
  const Child program([] { ::signal(SIGUSR1, [](int) { in->map("libtorch_cpu.so"); }); });
  LibraryUsers users;
  CHECK(users.look().library == 0);
  ::kill(program.pid(), SIGUSR1);
  const Deadline limit = Deadline::after_seconds(200);
  while (users.look().library == 0 && !limit.passed()) continue;
  CHECK_FALSE(limit.passed());
}

TEST_CASE("PyTorch wins over an MPI of the same process") {
  const Folder folder;
  const Server server;
  // The kernel maps a later file at a lower address.
  const Child program([&] {
    folder.map("libtorch_cpu.so");
    folder.map("libmpi.so.40");
    server.connect();
    server.accept();
  });
  LibraryUsers users;
  CHECK(users.look().library == 2);
  CHECK_FALSE(users.look().is_connected);  // the server and the client are in one process
  const Child other([&] {
    folder.map("libmpi.so.40");
    folder.map("libtorch_cpu.so");
    server.connect();
  });
  CHECK(users.look().is_connected);
}

TEST_CASE("an MPI is connected to a server that it has not started") {
  const Folder folder;
  const Server server;
  const Child mpi([&] {
    folder.map("libmpi.so.40");
    server.connect();
  });
  LibraryUsers users;
  {
    const Child daemon([&] { server.accept(); });
    const auto look = users.look();
    CHECK(look.library == 4);
    CHECK_FALSE(look.is_connected);
  }
  const Child other([&] {
    folder.map("libmpi.so.40");
    server.connect();
  });
  CHECK(users.look().is_connected);
}

TEST_CASE("looks run until a sign") {
  const Folder folder;
  auto loop = *net::EventLoop::open();
  Independence independence(loop);
  independence.begin({"train"}, "/", 0);
  const auto run_until = [&](uint8_t verdict) {
    const Deadline limit = Deadline::after_seconds(200);
    while (independence.verdict() != verdict && !limit.passed()) {
      loop.turn(Deadline::at(std::min(limit.time(), independence.deadline().time())));
      if (independence.deadline().passed()) independence.on_deadline();
    }
    CHECK(independence.verdict() == verdict);
  };
  const Child program([&] { folder.map("libtorch_cpu.so"); });
  run_until(2);
  CHECK(independence.deadline().seconds_left() <= 5);
  const Server server;
  const Child other([&] {
    folder.map("libtorch_cpu.so");
    server.connect();
  });
  run_until(0);
  CHECK(independence.deadline().is_never());
}

TEST_CASE("a sign during a look counts") {
  const Folder folder;
  auto loop = *net::EventLoop::open();
  Independence independence(loop);
  independence.begin({"train"}, "/", 0);
  const Child program([&] { folder.map("libtorch_cpu.so"); });
  independence.on_deadline();
  CHECK(independence.deadline().is_never());  // only one check runs at a time
  independence.on_sign();
  loop.turn(Deadline::after_seconds(0.2));
  CHECK(independence.verdict() == 0);
  CHECK(independence.deadline().is_never());
}

TEST_CASE("a file of many pages is read up to a limit") {
  const Folder folder;
  const std::string text(20'000, 'x'), file = folder.write("file", text);
  CHECK(read_large_proc_file(file, 1 << 20) == text);
  CHECK(read_large_proc_file(file, 17'000).size() == 17'000);
  CHECK(read_large_proc_file("/proc/self/none", 5000).empty());
}

}  // namespace hvd::launcher
