#include "launcher/output/sink.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  UniqueFd reader, writer;
};

// Reads the available data.
std::string read_available(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text(1 << 20, '\0');
  const ssize_t size = ::read(fd, text.data(), text.size());
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

void drain(net::asio::io_context& loop, Sink& sink) {
  bool drained = false;
  loop.restart();
  net::asio::co_spawn(loop, sink.drain(), [&](std::exception_ptr) { drained = true; });
  while (!drained && loop.run_one_for(std::chrono::seconds(30)) > 0) continue;
  REQUIRE(drained);
}

// Blocks the thread in a write until destroyed, like a stalled file system.
class Stall {
 public:
  explicit Stall(WriterThread& thread) {
    const auto full = std::make_shared<UniqueFd>(pipe_.writer.release());
    ::fcntl(full->get(), F_SETFL, O_NONBLOCK);
    const std::string page(4096, 'x');
    while (::write(full->get(), page.data(), page.size()) > 0) continue;
    ::fcntl(full->get(), F_SETFL, 0);
    thread.write(full, "x", [](int) {});
  }

 private:
  Pipe pipe_;
};

}  // namespace

TEST_CASE("a file system that stalls blocks nobody, and takes the rest in order afterwards") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file);
  Sink sink(loop.get_executor(), file.get(), thread);
  std::string expected, received(1000, '\0');
  size_t written = 0;
  {
    const Stall stall(thread);
    for (int i = 0; i < 100; ++i) {
      expected += cat(i, "\n");
      sink.write(cat(i, "\n"), [&] { ++written; });
      loop.poll();
    }
    CHECK(written == 0);
  }
  sink.end();
  drain(loop, sink);
  CHECK(written == 100);
  received.resize(static_cast<size_t>(::pread(file.get(), received.data(), received.size(), 0)));
  CHECK(received == expected);
}

TEST_CASE("the thread opens a file, and a file system that stalls there blocks nobody") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  char name[] = "/tmp/sink-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const std::string folder = name, path = folder + "/rank.0/stdout";
  for (const int flags : {O_TRUNC, O_APPEND}) {
    std::unique_ptr<Sink> sink;
    {
      const Stall stall(thread);
      sink = std::make_unique<Sink>(loop.get_executor(), path, flags, thread);
      sink->write("a line\n");
      CHECK((flags == O_APPEND || ::access(path.c_str(), F_OK) != 0));
      CHECK(sink->is_stalled());
    }
    sink->end();
    drain(loop, *sink);
  }
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(read_available(file.get()) == "a line\na line\n");

  Sink bad(loop.get_executor(), path + "/stdout", O_TRUNC, thread);
  int errors = 0, written = 0;
  bad.on_broken([&](int error) { errors += error == ENOTDIR ? 1 : 100; });
  bad.write("x", [&] { ++written; });
  bad.end();
  drain(loop, bad);
  CHECK(errors == 1);
  CHECK(written == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("lines of two sinks on one file stay in their order") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file);
  Sink out(loop.get_executor(), file.get(), thread);
  Sink err(loop.get_executor(), file.get(), thread);
  std::string expected, received(100'000, '\0');
  for (int i = 0; i < 1000; ++i) {
    expected += cat(i, "\n");
    (i % 3 == 0 ? err : out).write(cat(i, "\n"));
  }
  drain(loop, out);
  drain(loop, err);
  received.resize(static_cast<size_t>(::pread(file.get(), received.data(), received.size(), 0)));
  CHECK(received == expected);
}

TEST_CASE("bytes that a stalled file system does not take can be thrown away") {
  auto loop = std::make_unique<net::asio::io_context>();
  auto thread = std::make_unique<WriterThread>(loop->get_executor());
  const Stall stall(*thread);
  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file);
  int written = 0;
  {
    Sink sink(loop->get_executor(), file.get(), *thread);
    for (int i = 0; i < 2; ++i) sink.write("x", [&] { ++written; });
    CHECK(written == 0);
    sink.discard();
    CHECK(written == 2);
    CHECK_FALSE(sink.is_stalled());
  }
  // The launcher ends while the thread is still in its write.
  thread.reset();
  loop.reset();
}

TEST_CASE("a stalled pipe blocks nobody, and takes the rest once it is read") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  Pipe pipe;
  Sink sink(loop.get_executor(), pipe.writer.get(), thread);
  const std::string text(300'000, 'x');
  size_t written = 0;
  for (int i = 0; i < 3; ++i) sink.write(text, [&] { ++written; });
  CHECK(sink.is_stalled());
  CHECK(written == 0);
  std::string received;
  bool drained = false;
  net::asio::co_spawn(loop, sink.drain(), [&](std::exception_ptr) { drained = true; });
  while (!drained) {
    received += read_available(pipe.reader.get());
    loop.run_one();
  }
  received += read_available(pipe.reader.get());
  CHECK(received.size() == 3 * text.size());
  CHECK(written == 3);
}

TEST_CASE("the flags of a shared descriptor stay as they are") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  Pipe pipe;
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  const UniqueFd near(pair[0]), far(pair[1]);
  Sink to_pipe(loop.get_executor(), pipe.writer.get(), thread);
  Sink to_socket(loop.get_executor(), near.get(), thread);
  to_pipe.write(std::string(1 << 20, 'x'));
  to_socket.write(std::string(1 << 20, 'x'));
  CHECK(to_pipe.is_stalled());
  CHECK(to_socket.is_stalled());
  CHECK((::fcntl(pipe.writer.get(), F_GETFL) & O_NONBLOCK) == 0);
  CHECK((::fcntl(near.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("a reader that is gone is reported once, and later output is dropped") {
  std::signal(SIGPIPE, SIG_IGN);
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  Pipe pipe;
  Sink sink(loop.get_executor(), pipe.writer.get(), thread);
  pipe.reader.reset();
  int errors = 0, last = 0, written = 0;
  sink.on_broken([&](int error) {
    ++errors;
    last = error;
  });
  sink.write("a", [&] { ++written; });
  sink.write("b", [&] { ++written; });
  CHECK(errors == 1);
  CHECK(last == EPIPE);
  CHECK(written == 2);
  CHECK_FALSE(sink.is_stalled());
}

TEST_CASE("a full device is an error, a file takes all") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full);
  Sink sink(loop.get_executor(), full.get(), thread);
  int last = 0;
  sink.on_broken([&](int error) { last = error; });
  sink.write("a");
  CHECK(last == ENOSPC);

  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file);
  Sink to_file(loop.get_executor(), file.get(), thread);
  size_t written = 0;
  for (int i = 0; i < 3; ++i) to_file.write(std::string(1 << 20, 'x'), [&] { ++written; });
  CHECK(to_file.is_stalled());  // the thread has the chunk
  CHECK_FALSE(to_file.is_stuck());
  to_file.end();
  drain(loop, to_file);
  CHECK(written == 3);
  CHECK_FALSE(to_file.is_stalled());
  CHECK(::lseek(file.get(), 0, SEEK_END) == 3 << 20);
}

TEST_CASE("bytes that a stalled reader does not take can be thrown away") {
  net::asio::io_context loop;
  WriterThread thread(loop.get_executor());
  Pipe pipe;
  Sink sink(loop.get_executor(), pipe.writer.get(), thread);
  int written = 0;
  sink.write(std::string(1 << 20, 'x'), [&] { ++written; });
  bool drained = false;
  net::asio::co_spawn(loop, sink.drain(), [&](std::exception_ptr) { drained = true; });
  net::asio::post(loop, [&] { sink.discard(); });
  while (!drained) loop.run_one();
  sink.write("more", [&] { ++written; });
  CHECK(written == 2);
  CHECK_FALSE(sink.is_stalled());
}

}  // namespace hvd::launcher
