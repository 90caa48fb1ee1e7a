#include "launcher/spawn/child_process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "base/clock.h"
#include "tests/conformance/spawner_conformance.h"
#include "tests/open_descriptors.h"

namespace hvd::launcher {
namespace {

Result<std::unique_ptr<ChildProcess>> start(net::asio::io_context& loop, std::string script,
                                            ChildEnd end = ChildEnd::kLeave) {
  ChildCommand command;
  command.arguments = {"/bin/sh", "-c", std::move(script)};
  command.environment = {{"HVD_WORD", "from the launcher"}};
  command.end = end;
  return ChildProcess::start(loop.get_executor(), command);
}

bool has_children() { return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

TEST_CASE("a child's output is the stream, and its end is the stream's end") {
  net::asio::io_context loop(1);
  auto child = start(loop, "printf '%s\\n' \"$HVD_WORD\"; seq 100000 | tail -1");
  REQUIRE(child.ok());
  const auto text = run_on(loop, read_to_end(**child));
  REQUIRE(text.ok());
  CHECK(*text == "from the launcher\n100000\n");
  CHECK((*child)->last_words().empty());
  CHECK_FALSE(has_children());
}

TEST_CASE("bytes that are written come back from cat, whatever their size") {
  net::asio::io_context loop(1);
  auto child = start(loop, "exec cat");
  REQUIRE(child.ok());
  Bytes sent(3 << 20);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
  Bytes got;
  net::asio::co_spawn(
      loop,
      [](ChildProcess& out, const Bytes& bytes) -> net::Task<void> {
        const Status written = co_await out.write(bytes);
        CHECK(written.ok());
      }(**child, sent),
      net::asio::detached);
  net::asio::co_spawn(
      loop,
      [](ChildProcess& in, Bytes& bytes, size_t size) -> net::Task<void> {
        std::byte buffer[5000];
        while (bytes.size() < size) {
          const Result<size_t> some = co_await in.read_some(buffer);
          REQUIRE(some.ok());
          REQUIRE(*some > 0);
          bytes.insert(bytes.end(), buffer, buffer + *some);
        }
        in.close();
      }(**child, got, sent.size()),
      net::asio::detached);
  loop.run_for(std::chrono::seconds(30));
  CHECK(got == sent);
  CHECK_FALSE(has_children());
}

TEST_CASE("last words are standard error and how the process ended") {
  net::asio::io_context loop(1);
  auto child = start(loop, "echo 'no such thing' >&2; exit 7");
  REQUIRE(child.ok());
  CHECK(run_on(loop, read_to_end(**child)).ok());
  CHECK((*child)->last_words() == "no such thing; ended with exit code 7");

  auto killed = start(loop, "kill -9 $$");
  REQUIRE(killed.ok());
  CHECK(run_on(loop, read_to_end(**killed)).ok());
  CHECK((*killed)->last_words() == "was ended by signal 9 (SIGKILL)");
}

TEST_CASE("last words are bounded and keep the newest") {
  net::asio::io_context loop(1);
  auto child = start(loop, "seq 100000 >&2");
  REQUIRE(child.ok());
  CHECK(run_on(loop, read_to_end(**child)).ok());
  CHECK((*child)->last_words() == "99997; 99998; 99999; 100000");
}

TEST_CASE("a program that cannot be started is named") {
  net::asio::io_context loop(1);
  ChildCommand command;
  command.arguments = {"/does/not/exist"};
  const auto child = ChildProcess::start(loop.get_executor(), command);
  REQUIRE_FALSE(child.ok());
  CHECK(child.error().message() == "cannot start /does/not/exist: No such file or directory");
}

TEST_CASE("writing to a program that is gone is an error and no signal") {
  net::asio::io_context loop(1);
  auto child = start(loop, "exit 0");
  REQUIRE(child.ok());
  CHECK(run_on(loop, read_to_end(**child)).ok());
  const Bytes bytes(1000);
  const Status written = run_on(loop, (*child)->write(bytes));
  CHECK_FALSE(written.ok());
}

TEST_CASE("close ends a read at once and the program sees the end of its input") {
  net::asio::io_context loop(1);
  auto child = start(loop, "exec cat");
  REQUIRE(child.ok());
  net::asio::post(loop, [&] { (*child)->close(); });
  const auto text = run_on(loop, read_to_end(**child));
  REQUIRE_FALSE(text.ok());
  CHECK(text.error().code() == Code::kAborted);
  run_out(loop);
  CHECK_FALSE(has_children());
}

TEST_CASE("close can end a program that ignores the end of its input, with its group") {
  net::asio::io_context loop(1);
  auto child = start(loop, "sleep 1000 & sleep 1000", ChildEnd::kTerminate);
  REQUIRE(child.ok());
  const pid_t group = (*child)->pid();
  (*child)->close();
  run_out(loop);
  CHECK_FALSE(has_children());
  // init is now the parent of the second sleep process, and reaps the process.
  const Deadline deadline = Deadline::after_seconds(10);
  while (::kill(-group, 0) == 0 && !deadline.passed()) ::usleep(1000);
  CHECK(::kill(-group, 0) != 0);
}

// Counts the descriptors that this program inherited, beyond the standard three.
int inherited_descriptors() {
  int count = 0;
  for (int fd = STDERR_FILENO + 1; fd < 1024; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) ++count;
  }
  return count;
}

TEST_CASE("a child runs in a session of its own and gets no descriptor of the launcher's") {
  net::asio::io_context loop(1);
  auto child = start(loop, "ls /proc/self/fd | wc -l; cut -d' ' -f1,6 /proc/$$/stat; echo $$");
  REQUIRE(child.ok());
  const auto text = run_on(loop, read_to_end(**child));
  REQUIRE(text.ok());
  const std::string pid = std::to_string((*child)->pid());
  // The standard three, and the directory that ls reads.
  const std::string count = std::to_string(4 + inherited_descriptors());
  CHECK(*text == count + "\n" + pid + " " + pid + "\n" + pid + "\n");
}

TEST_CASE("children leave no descriptors and no zombies") {
  const size_t before = test::open_descriptors();
  {
    net::asio::io_context loop(1);
    std::vector<std::unique_ptr<ChildProcess>> children;
    for (int i = 0; i < 20; ++i) {
      auto child = start(loop, i % 2 ? "exec cat" : "exit 1");
      REQUIRE(child.ok());
      children.push_back(std::move(*child));
    }
    children.clear();
    run_out(loop);
  }
  CHECK(test::open_descriptors() == before);
  CHECK_FALSE(has_children());
}

TEST_CASE("cancelling a read ends it") {
  net::asio::io_context loop(1);
  auto child = start(loop, "exec cat");
  REQUIRE(child.ok());
  net::asio::steady_timer closer(loop, std::chrono::milliseconds(200));
  closer.async_wait([&](const net::error_code&) { (*child)->close(); });
  const auto text = run_and_cancel(loop, read_to_end(**child), std::chrono::milliseconds(20));
  CHECK((!text || !text->ok()));
}

}  // namespace
}  // namespace hvd::launcher
