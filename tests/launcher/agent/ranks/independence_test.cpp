#include "launcher/agent/ranks/independence.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
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

// Children end with their parent.
void fork_one(const std::function<void()>& work) {
  if (::fork() != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  work();
  for (;;) ::pause();
}

bool wants_no_more(const std::map<pid_t, LibraryUsers::Program>&) { return false; }

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
  Independence independence(loop, wants_no_more);
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
  Independence independence(loop, wants_no_more);
  independence.begin({"train"}, "/", 0);
  const Child program([&] { folder.map("libtorch_cpu.so"); });
  independence.on_deadline();
  CHECK(independence.deadline().is_never());  // only one check runs at a time
  independence.on_sign();
  loop.turn(Deadline::after_seconds(0.2));
  CHECK(independence.verdict() == 0);
  CHECK(independence.deadline().is_never());
}

TEST_CASE("looks go on while they are wanted, although ranks have met") {
  const Folder folder;
  auto loop = *net::EventLoop::open();
  int looks = 0;
  Independence independence(loop, [&](const auto&) { return ++looks < 3; });
  independence.begin({"train"}, "/", 0);
  const Server server;
  const Child other([&] {
    folder.map("libtorch_cpu.so");
    server.connect();
  });
  const Deadline limit = Deadline::after_seconds(200);
  while (!independence.deadline().is_never() || looks < 3) {
    if (limit.passed()) break;
    loop.turn(Deadline::at(std::min(limit.time(), independence.deadline().time())));
    if (independence.deadline().passed()) independence.on_deadline();
  }
  CHECK(looks == 3);
  CHECK(independence.verdict() == 0);
}

TEST_CASE("a child's program is its process with a library, with the variables of its start") {
  const Folder folder;
  LibraryUsers users;
  const auto program_of = [&](const Child& child) { return users.look().programs.at(child.pid()); };
  const auto wait_for = [&](const Child& child, const auto& is_there) {
    const Deadline limit = Deadline::after_seconds(200);
    while (!is_there(program_of(child)) && !limit.passed()) continue;
    CHECK_FALSE(limit.passed());
  };
  const Child plain([&] { folder.map("libtorch_cpu.so"); });
  const auto program = program_of(plain);
  CHECK((program.pid == plain.pid() && program.library == LibraryUsers::kTorch));
  CHECK((program.variables && !program.is_connected));
  // Another program of a shell is not taken for that with the library.
  const Child shell([&] {
    fork_one([] {});
    fork_one([&] { folder.map("libtorch_cpu.so"); });
  });
  wait_for(shell, [&](const auto& each) { return each.library != 0; });
  CHECK((program_of(shell).pid != shell.pid() && program_of(shell).variables));
  // Two programs with libraries: no variables.
  const Child two([&] {
    for (int i = 0; i < 2; ++i) fork_one([&] { folder.map("libtorch_cpu.so"); });
  });
  wait_for(two, [&](const auto& each) { return each.library != 0 && each.pid == -1; });
  CHECK_FALSE(program_of(two).variables);
  const pid_t begun = ::fork();
  if (begun == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char* const variables[] = {"RANK=3", "HOME=/root", nullptr};
    ::execle("/bin/sleep", "sleep", "60", nullptr, variables);
    ::_exit(1);
  }
  const Deadline limit = Deadline::after_seconds(200);
  const Environment expected = {{"RANK", "3"}};
  while (LibraryUsers().look().programs[begun].variables != expected && !limit.passed()) continue;
  CHECK_FALSE(limit.passed());
  ::kill(begun, SIGKILL);
  ::waitpid(begun, nullptr, 0);
}

TEST_CASE("variables of a program are compared with those of the launcher") {
  const Environment given = {{"RANK", "1"}, {"MASTER_PORT", "4000"}, {"WORLD_SIZE", "2"}};
  const auto changes =
      changes_between(given, {{"MASTER_PORT", "29500"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  REQUIRE(changes.size() == 2);
  CHECK((changes[0].name == "RANK" && changes[0].given == "1" && changes[0].found.empty()));
  CHECK((changes[1].name == "MASTER_PORT" && changes[1].found == "29500"));
  CHECK(changes_between(given, given).empty());
}

TEST_CASE("a file of many pages is read up to a limit") {
  const Folder folder;
  const std::string text(20'000, 'x'), file = folder.write("file", text);
  CHECK(read_large_proc_file(file, 1 << 20) == text);
  CHECK(read_large_proc_file(file, 17'000).size() == 17'000);
  CHECK(read_large_proc_file("/proc/self/none", 5000).empty());
}

}  // namespace hvd::launcher
