#include "launcher/agent/preflight/environment_transfer.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "base/secrets/secret.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

namespace fs = std::filesystem;

std::string pattern(size_t size, char first) {
  std::string text(size, first);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(first + i % 61);
  return text;
}

// The launcher's files and hashes.
struct Origin {
  std::map<std::string, std::string> content = {
      {"a", pattern(3 * kChunkSize + 5, 'a')}, {"b", ""}, {"c", pattern(kChunkSize, 'c')}};
  std::vector<PackageFile> files = [this] {
    std::vector<PackageFile> found;
    for (const auto& [path, bytes] : content) {
      found.push_back({.path = path, .size = bytes.size(), .digest = sha256(as_bytes(bytes))});
    }
    return found;
  }();
  ChunkTable chunks{files};
  EnvironmentOffer offer{.list = format_package_list(files), .space = 0, .glibc = "", .key = {}};

  std::string chunk(uint64_t number) const {
    const ChunkTable::Place place = chunks.at(number);
    return content.at(files[place.file].path).substr(place.offset, place.size);
  }
  EnvironmentDigests digests(uint64_t from, uint64_t to) const {
    EnvironmentDigests found;
    for (; from < to; ++from) found.digests.push_back(sha256(as_bytes(chunk(from))));
    return found;
  }
  EnvironmentDigests digests() const { return digests(0, chunks.size()); }
};

// A host, whose launcher is the test.
struct Receiver {
  Receiver(net::EventLoop& loop, const Origin& origin) : origin(origin) {
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    transfer = std::make_unique<EnvironmentTransfer>(
        loop, EnvironmentTransfer::Events{
                  .send =
                      [this](const Message& message) {
                        if (const auto* wanted = std::get_if<EnvironmentFilesWanted>(&message)) {
                          server = wanted->server;
                        } else {
                          asked.push_back(std::get<EnvironmentChunksWanted>(message));
                        }
                      },
                  .write =
                      [this](const StagePart& part) {
                        const auto mode =
                            part.kind == StageKind::kFile ? std::ios::trunc : std::ios::app;
                        std::ofstream(path(part.path), std::ios::binary | mode) << part.bytes;
                        return Status();
                      },
                  .on_end = [this](const Status& status) { ended = status; }});
    transfer->begin(origin.offer, origin.files, folder,
                    {.addresses = {{"127.0.0.1", "lo", net_loopback()}}, .ports = {}});
  }
  ~Receiver() { fs::remove_all(folder); }
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
  // As the launcher: answers the request for chunks from there on.
  void give(uint64_t to) {
    REQUIRE(!asked.empty());
    for (; asked.back().first < to; ++asked.back().first) {
      const uint64_t number = asked.back().first;
      REQUIRE(transfer->take(EnvironmentChunk{number, origin.chunk(number)}));
    }
  }
  EnvironmentSource as_source() const { return {"first", server}; }

  const Origin& origin;
  std::string folder = "/tmp/horovod-transfer-XXXXXX";
  std::unique_ptr<EnvironmentTransfer> transfer;
  MasterCandidates server;
  std::vector<EnvironmentChunksWanted> asked;
  std::optional<Status> ended;
};

struct World {
  net::EventLoop loop = *net::EventLoop::open();
  Origin origin;
  Receiver first{loop, origin}, second{loop, origin};

  template <typename Claim>
  bool until(Claim claim) {
    const Deadline deadline = Deadline::after_seconds(20);
    while (!claim() && !deadline.passed()) {
      loop.turn(Deadline::after_seconds(0.02));
      for (const Receiver* each : {&first, &second}) {
        if (each->transfer->deadline().passed()) each->transfer->on_deadline();
      }
    }
    return claim();
  }
  // The first host gets chunks from the launcher, the second one from the first.
  void begin() {
    REQUIRE(first.transfer->take(EnvironmentSource{}));
    REQUIRE(first.asked.size() == 1);
    CHECK(first.asked[0].why.empty());
    REQUIRE(first.transfer->take(origin.digests()));
    REQUIRE(first.server.port != 0);
    REQUIRE(second.transfer->take(first.as_source()));
  }
};

size_t descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace

TEST_CASE("a host passes chunks on while it gets others, and waits for their hashes") {
  const size_t before = descriptors();
  {
    World world;
    world.begin();
    // Before the hashes come, the next host takes nothing.
    world.first.give(2);
    CHECK(!world.until(
        [&] { return fs::exists(world.second.path("a")) || !world.second.asked.empty(); }));
    REQUIRE(world.second.transfer->take(world.origin.digests(0, 3)));
    CHECK(world.until([&] {
      std::error_code error;
      return fs::file_size(world.second.path("a"), error) == 2 * kChunkSize;
    }));
    CHECK(!world.first.ended);
    REQUIRE(world.second.transfer->take(world.origin.digests(3, world.origin.chunks.size())));
    world.first.give(world.origin.chunks.size());
    CHECK(world.first.has_all());
    CHECK(world.until([&] { return world.second.has_all(); }));
    CHECK(world.second.asked.empty());
    CHECK(world.second.transfer->taken() == 0);
    // The next host has all: the first one has stopped to listen.
    CHECK(world.until([&] {
      const auto socket = net::start_connect(Receiver::net_loopback(), world.first.server.port);
      pollfd ready{socket->get(), POLLOUT, 0};
      ::poll(&ready, 1, 1000);
      return net::connect_outcome(socket->get()) == ECONNREFUSED;
    }));
  }
  CHECK(descriptors() == before);
}

TEST_CASE("a host whose source is lost or sends wrong bytes gets the rest from the launcher") {
  World world;
  world.begin();
  REQUIRE(world.second.transfer->take(world.origin.digests()));
  world.first.give(1);
  std::string why;
  SUBCASE("lost in the middle") {
    CHECK(world.until([&] { return fs::exists(world.second.path("a")); }));
    world.first.transfer->close();
    why = "host first has closed the connection";
  }
  SUBCASE("a file was damaged there") {
    std::fstream(world.first.path("a"), std::ios::in | std::ios::out) << "damaged";
    why = "a chunk that host first has sent differs from its hash";
  }
  CHECK(world.until([&] { return !world.second.asked.empty(); }));
  CHECK(world.second.asked[0].why == why);
  CHECK(!world.second.ended);
  world.second.give(world.origin.chunks.size());
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
    world.second.transfer->close();
    world.origin.offer.key[0] ^= std::byte{1};
    world.second.transfer->begin(world.origin.offer, world.origin.files, world.second.folder, {});
    CHECK(world.second.server.port == 0);
    begin = "host first has closed the connection";
  }
  REQUIRE(world.second.transfer->take(source));
  CHECK(world.until([&] { return !world.second.asked.empty(); }));
  CHECK_MESSAGE(world.second.asked[0].why.starts_with(begin), world.second.asked[0].why);
  CHECK(world.second.asked[0].first == 0);
}

TEST_CASE("strangers get no chunk, and what the launcher did not announce is refused") {
  World world;
  world.begin();
  const auto socket = net::start_connect(Receiver::net_loopback(), world.first.server.port);
  REQUIRE(socket.ok());
  world.first.give(world.origin.chunks.size());
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
  Receiver other(world.loop, world.origin);
  CHECK(!other.transfer->take(EnvironmentChunk{0, world.origin.chunk(0)}));
  CHECK(!other.transfer->take(world.origin.digests()));
  REQUIRE(other.transfer->take(EnvironmentSource{}));
  CHECK(!other.transfer->take(EnvironmentSource{}));
  // A chunk without its hash, and one of other bytes.
  CHECK(other.transfer->take(EnvironmentChunk{0, world.origin.chunk(0)}));
  REQUIRE(other.ended);
  CHECK(!other.ended->ok());
  CHECK(!fs::exists(other.path("a")));
}
