#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "launcher/agent/doctor/host_facts.h"
#include "launcher/agent/doctor/pair_meter.h"
#include "launcher/agent/doctor/proven_stream.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A folder in place of /, with these files.
class Root {
 public:
  explicit Root(const std::vector<std::pair<std::string, std::string>>& files) {
    char name[] = "/tmp/facts-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
    for (const auto& [file, text] : files) {
      fs::create_directories((path_ / file).parent_path());
      std::ofstream(path_ / file) << text;
    }
  }
  ~Root() { fs::remove_all(path_); }
  Root(const Root&) = delete;
  std::string path() const { return path_.string() + "/"; }

 private:
  fs::path path_;
};

TEST_CASE("facts of this host are there, and those of another root are its files") {
  const Json facts = quick_facts();
  for (const char* key :
       {"cpus_allowed", "memory_available", "shm_bytes", "nofile", "kernel", "machine"}) {
    CAPTURE(key);
    CHECK(facts.contains(key));
  }
  const Root root({{"proc/stat", "cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1\n"},
                   {"proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   50 kB\n"},
                   {"sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n"},
                   {"sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "3\n"},
                   {"sys/class/net/eth0/speed", "10000\n"},
                   {"sys/class/net/eth0/mtu", "1500\n"},
                   {"sys/class/net/eth0/duplex", "half\n"},
                   {"sys/bus/pci/devices/0000:9a:00.0/class", "0x030200\n"},
                   {"sys/bus/pci/devices/0000:9a:00.0/current_link_width", "8\n"},
                   {"sys/bus/pci/devices/0000:9a:00.0/max_link_width", "16\n"},
                   {"sys/module/nvidia/version", "560.1\n"}});
  const Json found = quick_facts(root.path());
  CHECK(found["memory_available"] == 51200);
  CHECK(found["rdma"][0]["state"] == "DOWN");
  CHECK(found["rdma"][0]["link_downed"] == 3);
  CHECK(processor_time(root.path()).all == 100);
  CHECK(processor_time(root.path()).stolen == 10);
  CHECK(interface_facts("eth0", root.path())["duplex"] == "half");
  const Json further = further_facts("net", {}, root.path());
  CHECK(further["pcie"][0]["width"] == 8);
  CHECK(further["driver"] == "560.1");
  CHECK(further.contains("run_delay_percent"));
  CHECK(further.contains("tmp_bytes"));
}

// A name that a host lacks would be looked up in DNS; tests/bench/doctor plants it.
TEST_CASE("a name in /etc/hosts is not missing") { CHECK(missing_names({"localhost"}).empty()); }

TEST_CASE("a pair with the job's secret is measured, and one with another secret is refused") {
  const Secret secret = Secret::random();
  const auto server = PairServer::open(secret, {}, 3);
  REQUIRE(server.ok());
  const PairTarget target{{"127.0.0.1"}, server->port(), 3, 0.1};
  const Json values = measure_pair(target, secret);
  CAPTURE(values.dump());
  CHECK(!values.contains("error"));
  CHECK(values["send"] > 1e6);
  CHECK(values["receive"] > 1e6);
  CHECK(values["latency_p50"] > 0);
  const Json refused = measure_pair(target, Secret::random());
  CHECK(refused.contains("error"));
  CHECK(!refused.contains("send"));
  // Several hosts may have an address, as that of docker0: this one is not the host of rank 4.
  CHECK(measure_pair({{"127.0.0.1"}, server->port(), 4, 0.1}, secret).contains("error"));
  CHECK(measure_pair({{"127.0.0.1"}, 1, 3, 0.1}, secret).contains("error"));
  CHECK(measure_pair({{"no address"}, server->port(), 3, 0.1}, secret).contains("error"));
}

TEST_CASE("a message that is changed on its way is refused") {
  const Secret secret = Secret::random();
  auto listener = net::TcpListener::open();
  REQUIRE(listener.ok());
  const Deadline deadline = Deadline::after_seconds(20);
  std::thread client([&] {
    auto stream = ProvenStream::connect({"127.0.0.1"}, listener->port, secret, "test", deadline);
    if (!stream.ok()) return;
    CHECK(stream->send({{"a", 1}}, deadline).ok());
    // The same bytes again: the number that the code covers is another one.
    const std::string text = Json{{"a", 1}}.dump();
    Bytes forged = {static_cast<std::byte>(text.size()), {}, {}, {}};
    for (const char each : text) forged.push_back(static_cast<std::byte>(each));
    forged.resize(forged.size() + 32);
    CHECK(stream->write(forged, deadline).ok());
  });
  GuardedFd socket;
  while (!socket && !deadline.passed()) {
    pollfd waiting{listener->socket.get(), POLLIN, 0};
    ::poll(&waiting, 1, deadline.poll_timeout());
    socket = net::accept_tcp(*listener);
  }
  auto stream = ProvenStream::accept(std::move(socket), secret, "test", deadline);
  REQUIRE(stream.ok());
  CHECK(stream->name() == "test");
  const auto message = stream->receive(deadline);
  REQUIRE(message.ok());
  CHECK((*message)["a"] == 1);
  CHECK(stream->receive(deadline).status().code() == Code::kPermissionDenied);
  client.join();
}

}  // namespace
}  // namespace hvd::launcher
