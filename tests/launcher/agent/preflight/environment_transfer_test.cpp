#include "launcher/agent/preflight/environment_transfer.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/agent/ranks/staging.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

namespace fs = std::filesystem;

std::string pattern(size_t size, char first) {
  std::string text(size, first);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(first + i % 61);
  return text;
}

// The launcher's files.
struct Origin {
  std::map<std::string, std::string> content = {
      {"a", pattern(3 * kMostStaged + 5, 'a')}, {"b", ""}, {"c", pattern(kMostStaged, 'c')}};
  std::vector<PackageFile> files = [this] {
    std::vector<PackageFile> found;
    for (const auto& [path, bytes] : content) {
      found.push_back({.path = path, .size = bytes.size(), .digest = sha256(as_bytes(bytes))});
    }
    return found;
  }();
  EnvironmentOffer offer{.list = format_package_list(files), .space = 0, .glibc = "", .key = {}};

  // Returns the parts of all files from file number `first` on.
  std::vector<StagePart> parts(uint64_t first = 0) const {
    std::vector<StagePart> found;
    for (; first < files.size(); ++first) {
      const std::string& path = files[first].path;
      const std::string& bytes = content.at(path);
      for (size_t at = 0; at == 0 || at < bytes.size(); at += kMostStaged) {
        found.push_back({at == 0 ? StageKind::kFile : StageKind::kMore, 0600, path,
                         bytes.substr(at, kMostStaged)});
      }
    }
    return found;
  }
};

// A host whose launcher is the test.
struct Receiver {
  Receiver(net::EventLoop& loop, const Origin& origin) : origin(origin) {
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    transfer = std::make_unique<EnvironmentTransfer>(
        loop, EnvironmentTransfer::Events{
                  .send =
                      [this](const Message& message) {
                        const auto& wanted = std::get<EnvironmentFilesWanted>(message);
                        if (wanted.why.empty()) {
                          server = wanted.server;
                        } else {
                          asked.push_back(wanted);
                        }
                      },
                  .write = [this](const StagePart& part) { return staging.write(part); },
                  .on_end = [this](const Status& status) { ended = status; }});
    fs::remove(folder);
    staging = Staging(folder);
    transfer->begin(origin.offer, origin.files, folder,
                    {.addresses = {{"127.0.0.1", "lo", net_loopback()}}, .ports = {}});
  }
  ~Receiver() { staging.remove(); }
  Receiver(const Receiver&) = delete;
  static Bytes net_loopback() { return {std::byte{127}, std::byte{0}, std::byte{0}, std::byte{1}}; }

  std::string path(const std::string& name) const { return folder + "/" + name; }
  bool has_all() const {
    for (const auto& [name, bytes] : origin.content) {
      std::ifstream file(path(name), std::ios::binary);
      if (std::string(std::istreambuf_iterator<char>(file), {}) != bytes) return false;
    }
    return ended && ended->ok();
  }
  // Sends, as the launcher, `count` of the parts that the host lacks.
  void give(size_t count) {
    const std::vector<StagePart> parts = origin.parts(asked.empty() ? 0 : asked.back().first);
    for (; count > 0 && given < parts.size(); --count) {
      REQUIRE(transfer->wants_part());
      const Status status = transfer->take(parts[given++]);
      REQUIRE_MESSAGE(status.ok(), status.message());
    }
  }
  EnvironmentSource as_source() const { return {"first", server}; }

  const Origin& origin;
  std::string folder = "/tmp/horovod-transfer-XXXXXX";
  Staging staging{""};
  std::unique_ptr<EnvironmentTransfer> transfer;
  MasterCandidates server;
  std::vector<EnvironmentFilesWanted> asked;
  size_t given = 0;
  std::optional<Status> ended;
};

constexpr size_t kAll = 100;

struct World {
  net::EventLoop loop = *net::EventLoop::open();
  Origin origin;
  Receiver first{loop, origin}, second{loop, origin};

  template <typename Claim>
  bool until(Claim claim) {
    const Deadline deadline = Deadline::after_seconds(200);
    while (!claim() && !deadline.passed()) {
      loop.turn(Deadline::after_seconds(0.02));
      for (const Receiver* each : {&first, &second}) {
        if (each->transfer->deadline().passed()) each->transfer->on_deadline();
      }
    }
    return claim();
  }
  // The first host gets parts from the launcher, the second host from the first host.
  void begin() {
    REQUIRE(first.transfer->take(EnvironmentSource{}));
    REQUIRE(first.server.port != 0);
    REQUIRE(second.transfer->take(first.as_source()));
    CHECK(!second.transfer->wants_part());
  }
  // Returns whether the second host has this many bytes of the first file.
  bool has_come(uint64_t size) {
    return until([&] {
      std::error_code error;
      return fs::file_size(second.path("a"), error) == size && !error;
    });
  }
};

size_t descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace

TEST_CASE("a host passes parts on while it gets others") {
  const size_t before = descriptors();
  {
    World world;
    world.begin();
    world.first.give(2);
    CHECK(world.has_come(2 * kMostStaged));
    CHECK(!world.first.ended);
    world.first.give(kAll);
    CHECK(world.first.has_all());
    CHECK(world.until([&] { return world.second.has_all(); }));
    CHECK(world.second.asked.empty());
    CHECK(world.second.transfer->taken() == 0);
    // The next host has all parts, so the first host has closed its listener.
    CHECK(world.until([&] {
      const auto socket = net::start_connect(Receiver::net_loopback(), world.first.server.port);
      pollfd ready{socket->get(), POLLOUT, 0};
      ::poll(&ready, 1, 1000);
      return net::connect_outcome(socket->get()) == ECONNREFUSED;
    }));
  }
  CHECK(descriptors() == before);
}

TEST_CASE("a host whose source is lost gets the file again, and the next host goes on") {
  World world;
  world.begin();
  Receiver third(world.loop, world.origin);
  REQUIRE(third.transfer->take(EnvironmentSource{"second", world.second.server}));
  world.first.give(1);
  CHECK(world.has_come(kMostStaged));
  world.first.transfer->close();
  CHECK(world.until([&] { return !world.second.asked.empty(); }));
  CHECK(world.second.asked[0].why == "host first has closed the connection");
  CHECK(world.second.asked[0].first == 0);
  CHECK(!world.second.ended);
  world.second.give(kAll);
  CHECK(world.second.has_all());
  CHECK(world.until([&] { return third.has_all(); }));
  CHECK(third.asked.empty());
}

TEST_CASE("a file that was damaged at the source comes from the launcher") {
  World world;
  REQUIRE(world.first.transfer->take(EnvironmentSource{}));
  world.first.give(kAll);
  CHECK(world.first.has_all());
  std::fstream(world.first.path("a"), std::ios::in | std::ios::out) << "damaged";
  REQUIRE(world.second.transfer->take(world.first.as_source()));
  CHECK(world.until([&] { return !world.second.asked.empty(); }));
  CHECK(world.second.asked[0].why == "the file a that host first has sent differs from its hash");
  CHECK(world.second.asked[0].first == 0);
  world.second.give(kAll);
  CHECK(world.second.has_all());
}

TEST_CASE("the launcher sends from the file on that a lost host has not sent whole") {
  World world;
  world.begin();
  world.first.give(5);  // gives all but the last file
  CHECK(world.until([&] { return fs::exists(world.second.path("b")); }));
  world.first.transfer->close();
  CHECK(world.until([&] { return !world.second.asked.empty(); }));
  CHECK(world.second.asked[0].first == 2);
  world.second.give(kAll);
  CHECK(world.second.has_all());
}

TEST_CASE("a source that cannot be reached, or that has another key, is left for the launcher") {
  World world;
  REQUIRE(world.first.transfer->take(EnvironmentSource{}));
  EnvironmentSource source = world.first.as_source();
  std::string begin = "it reaches host first at none of its addresses, port ";
  SUBCASE("no port") { world.first.transfer->close(); }
  SUBCASE("another program") { source.server.nonce = {}; }
  SUBCASE("another key") {
    world.origin.offer.key[0] ^= std::byte{1};
    Receiver other(world.loop, world.origin);
    REQUIRE(other.transfer->take(source));
    CHECK(world.until([&] {
      if (other.transfer->deadline().passed()) other.transfer->on_deadline();
      return !other.asked.empty();
    }));
    CHECK(other.asked[0].why == "host first has closed the connection");
    return;
  }
  REQUIRE(world.second.transfer->take(source));
  CHECK(world.until([&] { return !world.second.asked.empty(); }));
  CHECK_MESSAGE(world.second.asked[0].why.starts_with(begin), world.second.asked[0].why);
  CHECK(world.second.asked[0].first == 0);
  CHECK(world.second.asked[0].server.port == 0);
}

TEST_CASE("strangers get no part, and what the launcher did not announce is refused") {
  World world;
  world.begin();
  const auto socket = net::start_connect(Receiver::net_loopback(), world.first.server.port);
  REQUIRE(socket.ok());
  world.first.give(kAll);
  Bytes answer;
  bool is_closed = false, has_asked = false;
  CHECK(world.until([&] {
    std::byte bytes[4096];
    const ssize_t size = ::recv(socket->get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) answer.insert(answer.end(), bytes, bytes + size);
    if (answer.size() == kChallengeSize && !std::exchange(has_asked, true)) {
      const Bytes request(kRequestSize);
      CHECK(::send(socket->get(), request.data(), request.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(kRequestSize));
    }
    is_closed = size == 0 || (size < 0 && errno == ECONNRESET);
    return is_closed;
  }));
  CHECK(answer.size() == kChallengeSize);
  {
    Receiver other(world.loop, world.origin);
    CHECK(!other.transfer->wants_part());
    REQUIRE(other.transfer->take(EnvironmentSource{}));
    CHECK(!other.transfer->take(EnvironmentSource{}));
  }
  const auto is_refused = [&](StagePart part) {
    Receiver other(world.loop, world.origin);
    REQUIRE(other.transfer->take(EnvironmentSource{}));
    return !other.transfer->take(part).ok() && !fs::exists(other.path("a")) && !other.ended;
  };
  CHECK(!is_refused(world.origin.parts()[0]));
  CHECK(is_refused(world.origin.parts()[1]));
  CHECK(is_refused({StageKind::kFile, 0600, "../a", "x"}));
  CHECK(is_refused({StageKind::kFile, 0600, "a", ""}));
  CHECK(is_refused({StageKind::kFile, 0600, "a", std::string(3 * kMostStaged + 6, 'x')}));
  CHECK(is_refused({StageKind::kLink, 0, "a", "/etc"}));
  // Refuses a complete file with different content.
  CHECK(is_refused({StageKind::kFile, 0600, "a", std::string(3 * kMostStaged + 5, 'x')}));
}

TEST_CASE(
    "parts that are under way when a write fails get its reason, also if the disk has space "
    "again") {
  World world;
  const std::vector<StagePart> parts = world.origin.parts();
  const Status full = system_error("cannot write a", ENOSPC);
  size_t writes = 0, failing = 0;
  EnvironmentTransfer transfer(
      world.loop, {.send = [](const Message&) {},
                   .write = [&](const StagePart&) { return writes++ == failing ? full : Status(); },
                   .on_end = [](const Status&) { FAIL("the transfer has no end of its own"); }});
  SUBCASE("in the middle") { failing = 1; }
  SUBCASE("in the last file") { failing = parts.size() - 1; }
  transfer.begin(world.origin.offer, world.origin.files, "/nonexistent", {});
  REQUIRE(transfer.take(EnvironmentSource{}));
  for (size_t part = 0; part < failing; ++part) CHECK(transfer.take(parts[part]).ok());
  uint64_t taken = transfer.taken();
  for (size_t part = failing; part < failing + 3; ++part) {
    const StagePart& next = parts[std::min(part, parts.size() - 1)];
    REQUIRE(transfer.wants_part());
    CHECK(transfer.take(next) == full);
    taken += next.path.size() + next.bytes.size();
    CHECK(transfer.taken() == taken);
  }
  CHECK(writes == failing + 1);
}

TEST_CASE("parts of staged code that are under way when one fails get its reason") {
  std::string folder = "/tmp/horovod-staging-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  Staging staging(folder + "/copy");
  REQUIRE(staging.take({StageKind::kDirectory, 0700, "a", ""}).ok());
  const Status first = staging.take({StageKind::kFile, 0600, "a", "x"});
  CHECK_MESSAGE(first.message().starts_with(cat("cannot write ", folder, "/copy/a: ")),
                first.message());
  CHECK(staging.take({StageKind::kMore, 0600, "a", "y"}) == first);
  CHECK(staging.take({StageKind::kFile, 0600, "b", "z"}) == first);
  CHECK(staging.taken() == 7);
  CHECK(!fs::exists(folder + "/copy/b"));
  fs::remove_all(folder);
}
