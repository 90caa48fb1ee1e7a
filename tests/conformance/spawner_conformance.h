// The tests that every spawner must pass, whatever its transport. The tests of each spawner call
// check_spawner. Shell scripts take the place of agents.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/text.h"
#include "launcher/spawn/spawner.h"
#include "tests/launcher/spawn/on_loop.h"

namespace hvd::launcher {

// A temporary directory. The destructor removes it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "hvd-spawn-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, std::string_view text, bool executable = false) {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    std::filesystem::permissions(file, std::filesystem::perms(executable ? 0700 : 0600));
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

using SpawnResult = Result<std::unique_ptr<Duplex>>;

inline net::Task<Result<std::string>> read_to_end(Duplex& stream) {
  std::string text;
  for (;;) {
    std::byte buffer[1000];
    const Result<size_t> size = co_await stream.read_some(buffer);
    if (!size.ok()) co_return size.status();
    if (*size == 0) co_return text;
    text += as_text({buffer, *size});
  }
}

// Reads all output of the stream; returns an error if reading fails.
inline std::string said_by(net::asio::io_context& loop, const SpawnResult& stream) {
  if (!stream.ok()) return stream.status().message();
  const auto said = run_on(loop, read_to_end(**stream));
  return said.ok() ? *said : said.status().message();
}

inline net::Task<Result<std::string>> read_line(Duplex& stream) {
  std::string text;
  while (!text.ends_with('\n')) {
    std::byte byte;
    const Result<size_t> size = co_await stream.read_some({&byte, 1});
    if (!size.ok()) co_return size.status();
    if (*size == 0) co_return unavailable("the stream ended within a line");
    text += static_cast<char>(byte);
  }
  co_return text;
}

// The capabilities of a spawner.
struct SpawnerKind {
  // Starts agents by their path, and reports their standard error and exit status.
  bool starts_agents = true;
};

// `loop`: the loop of the spawner. `target`: names the host; the tests set its agent.
inline void check_spawner(net::asio::io_context& loop, Spawner& spawner, SpawnTarget target,
                          SpawnerKind kind = {}) {
  ScratchFolder scratch;
  const auto spawn = [&](const std::string& script) {
    target.agent_path = scratch.write("agent", "#!/bin/sh\n" + script + "\n", true);
    return run_on(loop, spawner.spawn(target, [](SpawnStage) {}));
  };

  SUBCASE("stages are reported in order, and the last is ready") {
    std::vector<SpawnStage> stages;
    target.agent_path = scratch.write("agent", "#!/bin/sh\nexec cat\n", true);
    const auto stream =
        run_on(loop, spawner.spawn(target, [&](SpawnStage stage) { stages.push_back(stage); }));
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    REQUIRE_FALSE(stages.empty());
    CHECK(std::is_sorted(stages.begin(), stages.end()));
    CHECK(stages.back() == SpawnStage::kReady);
  }

  SUBCASE("the agent's first bytes are the stream's first bytes") {
    const auto stream = spawn("printf 'first\\nsecond'");
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    const auto text = run_on(loop, read_to_end(**stream));
    REQUIRE(text.ok());
    CHECK(*text == "first\nsecond");
    CHECK((*stream)->last_words().empty());
  }

  SUBCASE("every byte survives both ways at once") {
    const auto stream = spawn("exec cat");
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    Bytes sent(5 << 20);
    for (size_t i = 0; i < sent.size(); ++i)
      sent[i] = static_cast<std::byte>((i * 2654435761) >> 9);
    std::optional<Status> written;
    net::asio::co_spawn(
        loop,
        [](Duplex& out, const Bytes& bytes, std::optional<Status>& status) -> net::Task<void> {
          status = co_await out.write(bytes);
        }(**stream, sent, written),
        net::asio::detached);
    const Bytes got = run_on(loop, [](Duplex& in, size_t size) -> net::Task<Bytes> {
      Bytes bytes;
      std::byte buffer[20000];
      while (bytes.size() < size) {
        const Result<size_t> some = co_await in.read_some(buffer);
        if (!some.ok() || *some == 0) break;
        bytes.insert(bytes.end(), buffer, buffer + *some);
      }
      co_return bytes;
    }(**stream, sent.size()));
    // The reader may get the last bytes before the writer's coroutine continues.
    const Deadline deadline = Deadline::after_seconds(200);
    while (!written && !deadline.passed()) {
      loop.restart();
      loop.run_for(std::chrono::milliseconds(10));
    }
    REQUIRE(written);
    CHECK(written->ok());
    CHECK(got == sent);
  }

  SUBCASE("standard error and a bad end are last words") {
    if (!kind.starts_agents) return;
    const auto stream = spawn("echo 'cannot do it' >&2; exit 9");
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    CHECK(run_on(loop, read_to_end(**stream)).ok());
    CHECK((*stream)->last_words() == "cannot do it; ended with exit code 9");
  }

  SUBCASE("a stream that nobody reads holds the agent back, and writing goes on") {
    const auto stream = spawn("yes & read word; echo \"$word\" >&2; kill -9 $!; exit 4");
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    CHECK(run_on(loop, (*stream)->write(as_bytes("onwards\n"))).ok());
    CHECK(run_on(loop, read_to_end(**stream)).ok());
    if (kind.starts_agents) CHECK((*stream)->last_words() == "onwards; ended with exit code 4");
  }

  SUBCASE("close wakes the reader, and the agent sees the end of its input") {
    const std::string gone = (scratch.path() / "gone").string();
    const auto stream = spawn("cat; touch '" + gone + "'");
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    net::asio::steady_timer timer(loop, std::chrono::milliseconds(20));
    timer.async_wait([&](const net::error_code&) { (*stream)->close(); });
    const auto text = run_on(loop, read_to_end(**stream));
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().code() == Code::kAborted);
    const Deadline deadline = Deadline::after_seconds(10);
    while (!std::filesystem::exists(gone) && !deadline.passed()) {
      loop.restart();
      loop.run_for(std::chrono::milliseconds(10));
    }
    CHECK(std::filesystem::exists(gone));
  }

  SUBCASE("an agent that is not there is named") {
    if (!kind.starts_agents) return;
    target.agent_path = (scratch.path() / "nothing").string();
    const auto stream = run_on(loop, spawner.spawn(target, [](SpawnStage) {}));
    REQUIRE_FALSE(stream.ok());
    CHECK(stream.error().message().find(target.agent_path) != std::string::npos);
  }
  run_out(loop);
}

}  // namespace hvd::launcher
