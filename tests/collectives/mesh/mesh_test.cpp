// Rendezvous, control messages, sleeping, and every kind of lost rank.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "collectives/checks.h"
#include "collectives/relay.h"
#include "idle.h"
#include "open_descriptors.h"

using namespace hvd;
using namespace hvd::test;

namespace {

Bytes message_of(int32_t from, int32_t to, uint32_t number, size_t size) {
  Bytes bytes(size, static_cast<std::byte>(number));
  const std::array<uint32_t, 3> head{static_cast<uint32_t>(from), static_cast<uint32_t>(to),
                                     number};
  std::memcpy(bytes.data(), head.data(), sizeof head);
  return bytes;
}

// The kernel may reset the connections of a process that ends; a rank cannot know the cause of a reset.
bool names_culprit(int rank, const std::string& host, const std::string& sentence) {
  const std::string name = cat("rank ", rank, " on host ", host);
  if (sentence.starts_with(name)) return true;
  return sentence.starts_with("the connection between rank ") &&
         sentence.substr(0, sentence.find(';')).find(name) != std::string::npos;
}

}  // namespace

TEST_CASE("one boot id means one kernel, whatever the network namespace of a rank") {
  collectives::PeerRecord one, other;
  one.machine = "1f2e/4/100";
  other.machine = "1f2e/4/200";
  CHECK(collectives::shares_kernel(one, other));
  other.machine = "1f2/4/100";
  CHECK(!collectives::shares_kernel(one, other));
}

TEST_CASE("ranks learn which of them share a host") {
  World world({0, 1, 0, 2, 1});
  require_all_ok(world.run([](Rank& rank) -> Status {
    if (rank.mesh().hosts() != std::vector<int32_t>{0, 1, 0, 2, 1}) {
      return internal_error("other hosts");
    }
    if (rank.mesh().describe(3) != "rank 3 on host c") {
      return internal_error(rank.mesh().describe(3));
    }
    return pass_barrier(rank);
  }));
}

TEST_CASE("control messages of every size arrive in order, once and whole") {
  for (const auto& hosts : {std::vector<int>{0, 0}, {0, 0, 0, 0}, {0, 1}, {0, 0, 1, 2}}) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      const std::vector<size_t> sizes{12, 13, 239, 240, 241, 480, 5000, 100'000, 1 << 20, 12};
      const uint32_t rounds = 30;
      std::vector<uint32_t> expected(static_cast<size_t>(rank.size()), 0);
      std::string complaint;
      rank.on_message = [&](int32_t from, ByteView message) {
        const uint32_t number = expected[static_cast<size_t>(from)]++;
        const Bytes wanted = message_of(from, rank.rank(), number, sizes[number % sizes.size()]);
        if (!std::equal(message.begin(), message.end(), wanted.begin(), wanted.end())) {
          complaint = cat("message ", number, " from ", from, " has ", message.size(), " bytes");
        }
      };
      const auto whole = [&] {
        return !complaint.empty() || std::all_of(expected.begin(), expected.end(),
                                                 [&](uint32_t count) { return count == rounds; });
      };
      for (uint32_t number = 0; number < rounds; ++number) {
        for (int32_t to = 0; to < rank.size(); ++to) {
          HVD_RETURN_IF_ERROR(rank.mesh().send(
              to, message_of(rank.rank(), to, number, sizes[number % sizes.size()])));
        }
      }
      HVD_RETURN_IF_ERROR(rank.drive(whole));
      if (!complaint.empty()) return internal_error(complaint);
      return pass_barrier(rank);
    }));
  }
}

TEST_CASE("an empty message is a message") {
  World world({0, 0, 1});
  require_all_ok(world.run([](Rank& rank) -> Status {
    int empty = 0;
    rank.on_message = [&](int32_t, ByteView message) { empty += message.empty() ? 1 : 100; };
    for (int32_t to = 0; to < rank.size(); ++to) {
      HVD_RETURN_IF_ERROR(rank.mesh().send(to, {}));
    }
    HVD_RETURN_IF_ERROR(rank.drive([&] { return empty >= rank.size(); }));
    return empty == rank.size() ? pass_barrier(rank) : internal_error(cat(empty));
  }));
}

TEST_CASE("no wake-up is lost between ranks that sleep at once") {
  for (const auto& hosts : {std::vector<int>{0, 0}, {0, 0, 0}, {0, 1}, {0, 0, 1}}) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    std::atomic<int> sleeps = 0;
    require_all_ok(world.run([&](Rank& rank) -> Status {
      int32_t heard = 0;
      rank.on_message = [&](int32_t, ByteView) { ++heard; };
      for (int32_t round = 1; round <= 1000; ++round) {
        rank.spins = round % 3;
        if (round % 2 == 0) {
          HVD_RETURN_IF_ERROR(pass_barrier(rank));
          continue;
        }
        // Passes a token once around the ring.
        const int32_t next = (rank.rank() + 1) % rank.size();
        if (rank.rank() == 0) HVD_RETURN_IF_ERROR(rank.mesh().send(next, {}));
        HVD_RETURN_IF_ERROR(rank.drive([&] { return heard == (round + 1) / 2; }));
        if (rank.rank() != 0) HVD_RETURN_IF_ERROR(rank.mesh().send(next, {}));
      }
      sleeps += rank.sleeps;
      return pass_barrier(rank);
    }));
    CHECK(sleeps > 100);
  }
}

TEST_CASE("a rank with another secret is refused with a sentence") {
  for (const int host_of_last : {0, 1}) {
    CAPTURE(host_of_last);
    World world({0, 0, host_of_last});
    std::vector<Status> outcomes(3);
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        MeshOptions options = world.options(i);
        if (i == 2) options.credentials.secret = test_secret("a stranger's");
        auto mesh = Mesh::establish(options, world.store, Deadline::after_seconds(5));
        outcomes[static_cast<size_t>(i)] = mesh.status();
        if (!mesh.ok()) return;
        Rank rank(std::move(mesh).value());
        outcomes[static_cast<size_t>(i)] = pass_barrier(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    INFO(outcomes[0].message());
    INFO(outcomes[2].message());
    CHECK(!outcomes[0].ok());
    CHECK(!outcomes[2].ok());
    if (host_of_last == 0) {
      CHECK(outcomes[2].message() ==
            "rank 0 on host a refused rank 2: it does not hold the secret of that job");
      CHECK(outcomes[0].message() ==
            "rank 2 on host a did not connect to rank 0 there before the start timeout");
    } else {
      CHECK(outcomes[2].message().find("did not prove that it belongs to this job") !=
            std::string::npos);
    }
  }
}

TEST_CASE("strangers who knock and say nothing hold nobody up") {
  World world({0, 0});
  std::vector<UniqueFd> strangers;
  std::thread stranger([&] {
    const auto bytes = world.store.get("mesh/0/rank/0", Deadline::after_seconds(5));
    const auto record = collectives::PeerRecord::decode(bytes.value());
    for (int i = 0; i < 3; ++i) {
      strangers.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, record->rendezvous_socket.data(),
                  record->rendezvous_socket.size());
      ::connect(strangers.back().get(), reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                       record->rendezvous_socket.size()));
      if (i == 1) ::send(strangers.back().get(), "rubbish", 7, MSG_NOSIGNAL);
    }
  });
  require_all_ok(world.run(pass_barrier));
  stranger.join();
}

TEST_CASE("ranks that do not start are named when time is up") {
  World world({0, 0, 0, 0});
  REQUIRE(world.store.set("mesh/0/rank/2", as_bytes("here")).ok());
  auto mesh = Mesh::establish(world.options(0), world.store, Deadline::after_seconds(0.2));
  REQUIRE(!mesh.ok());
  CHECK(mesh.status().code() == Code::kDeadlineExceeded);
  INFO(mesh.status().message());
  CHECK(mesh.status().message().starts_with("ranks 1 and 3 have not connected to the others"));
}

TEST_CASE("an abort reaches all ranks with the same cause") {
  for (const auto& hosts : all_worlds()) {
    if (hosts.size() < 2) continue;
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    const auto outcomes = world.run([](Rank& rank) -> Status {
      HVD_RETURN_IF_ERROR(pass_barrier(rank));
      if (rank.rank() == rank.size() - 1) rank.mesh().fail(aborted("the cat sat on rank 1"));
      return pass_barrier(rank);
    });
    for (const Status& outcome : outcomes) CHECK(outcome.message() == "the cat sat on rank 1");
  }
}

TEST_CASE("a rank that leaves in good order fails only those who wait for it") {
  for (const auto& hosts : {std::vector<int>{0, 0, 0}, {0, 1, 2}}) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    const auto outcomes = world.run([](Rank& rank) -> Status {
      HVD_RETURN_IF_ERROR(pass_barrier(rank));
      if (rank.rank() == 2) return {};
      return pass_barrier(rank);
    });
    CHECK(outcomes[2].message() == "");
    for (const size_t rank : {size_t{0}, size_t{1}}) {
      INFO(outcomes[rank].message());
      CHECK(names_culprit(2, "", outcomes[rank].message()));
    }
  }
}

TEST_CASE("a process that dies fails all others within two seconds, also if a child of it lives") {
  for (const auto& hosts : {std::vector<int>{0, 0, 0}, {0, 1, 1}, {0, 0, 1}, {1, 0, 0, 1}}) {
    for (size_t victim = 0; victim < hosts.size(); ++victim) {
      CAPTURE(name_of_world(hosts));
      CAPTURE(victim);
      // A store for processes: pipes through a parent would need a server, so the rendezvous's few
      // keys are files in a temporary directory.
      const std::string folder =
          cat(std::filesystem::temp_directory_path().string(), "/mesh_test.", ::getpid());
      std::filesystem::create_directory(folder);
      class FileStore final : public collectives::KeyValueStore {
       public:
        explicit FileStore(std::string folder) : folder_(std::move(folder)) {}
        Status set(std::string_view key, ByteView value) override {
          const std::string path = path_of(key);
          FILE* file = std::fopen((path + ".new").c_str(), "wb");
          std::fwrite(value.data(), 1, value.size(), file);
          std::fclose(file);
          std::filesystem::rename(path + ".new", path);
          return {};
        }
        Result<Bytes> get(std::string_view key, Deadline deadline) override {
          while (!deadline.passed()) {
            if (FILE* file = std::fopen(path_of(key).c_str(), "rb")) {
              Bytes bytes(4096);
              bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
              std::fclose(file);
              return bytes;
            }
            ::poll(nullptr, 0, 2);
          }
          return deadline_exceeded("no key");
        }

       private:
        std::string path_of(std::string_view key) const {
          std::string path(key);
          std::replace(path.begin(), path.end(), '/', '_');
          return folder_ + "/" + path;
        }
        std::string folder_;
      };

      std::vector<pid_t> processes;
      std::vector<UniqueFd> reports;
      for (size_t i = 0; i < hosts.size(); ++i) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        const pid_t process = ::fork();
        if (process == 0) {
          World world(hosts);
          FileStore store(folder);
          MeshOptions options = world.options(static_cast<int32_t>(i));
          options.memory_map = nullptr;
          auto mesh = Mesh::establish(options, store, Deadline::after_seconds(200));
          Status outcome = mesh.status();
          if (mesh.ok()) {
            Rank rank(std::move(mesh).value());
            outcome = pass_barrier(rank);
            if (outcome.ok() && i == victim) {
              // A child that keeps every descriptor, like a worker of a data loader.
              if (::fork() == 0) {
                ::close(ends[1]);
                ::sleep(3);
                ::_exit(0);
              }
              ::kill(::getpid(), SIGKILL);
            }
            if (outcome.ok()) outcome = pass_barrier(rank);
            [[maybe_unused]] const ssize_t put =
                ::write(ends[1], outcome.message().data(), outcome.message().size());
          }
          ::_exit(0);
        }
        processes.push_back(process);
        ::close(ends[1]);
        reports.emplace_back(ends[0]);
      }
      ::waitpid(processes[victim], nullptr, 0);
      const double died = idle_seconds();
      std::vector<std::string> outcomes;
      for (size_t i = 0; i < hosts.size(); ++i) {
        std::string text(512, '\0');
        const ssize_t size = i == victim ? 0 : ::read(reports[i].get(), text.data(), text.size());
        text.resize(size < 0 ? 0 : static_cast<size_t>(size));
        outcomes.push_back(text);
        if (i != victim) ::waitpid(processes[i], nullptr, 0);
      }
      CHECK(idle_seconds() - died < 2);
      const std::string host(1, static_cast<char>('a' + hosts[victim]));
      for (size_t i = 0; i < hosts.size(); ++i) {
        INFO(outcomes[i]);
        if (i != victim) CHECK(names_culprit(static_cast<int>(victim), host, outcomes[i]));
      }
      std::filesystem::remove_all(folder);
    }
  }
}

TEST_CASE("a hundred meshes leave no descriptor behind") {
  for (const auto& hosts : {std::vector<int>{0, 0}, {0, 1}}) {
    CAPTURE(name_of_world(hosts));
    size_t before = 0;
    for (int cycle = 0; cycle < 100; ++cycle) {
      if (cycle == 1) before = open_descriptors();
      World world(hosts);
      const auto outcomes = world.run([](Rank& rank) -> Status {
        HVD_RETURN_IF_ERROR(rank.mesh().send((rank.rank() + 1) % 2, as_bytes("hello")));
        return pass_barrier(rank);
      });
      require_all_ok(outcomes);
    }
    CHECK(open_descriptors() == before);
  }
}

TEST_CASE("a leader that a rank publishes is checked before it is used as an index") {
  class LyingStore final : public collectives::KeyValueStore {
   public:
    explicit LyingStore(int32_t leader) : leader_(leader) {}
    Status set(std::string_view key, ByteView value) override {
      if (key != "mesh/0/leader/1") return store_.set(key, value);
      return store_.set(key, ByteWriter().put(leader_).view());
    }
    Result<Bytes> get(std::string_view key, Deadline deadline) override {
      return store_.get(key, deadline);
    }

   private:
    const int32_t leader_;
    MemoryStore store_;
  };
  for (const int32_t leader : {-1, 2, 1 << 30}) {
    CAPTURE(leader);
    World world({0, 0});
    LyingStore store(leader);
    const auto outcomes = run_on(world, store, pass_barrier, 2);
    CHECK(outcomes[0].message() == "a table of hosts makes no sense");
    CHECK(!outcomes[1].ok());
  }
}

TEST_CASE("an address record of another rank is refused") {
  World world({0, 1});
  ChangingStore store([](collectives::PeerRecord& record) {
    if (record.rank == 1) record.rank = 1 << 30;
  });
  const auto outcomes = run_on(world, store, pass_barrier, 2);
  CHECK(outcomes[0].message() == "the address record of rank 1 names rank 1073741824");
}

TEST_CASE("a rank alone needs nobody") {
  World world({0});
  require_all_ok(world.run(pass_barrier));
}
