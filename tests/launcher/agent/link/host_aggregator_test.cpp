// Hosts whose agents aggregate records. Ranks are threads here; the server is real.
#include "launcher/agent/link/host_aggregator.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "base/text.h"
#include "rendezvous/client/agent_store.h"
#include "rendezvous/running_server.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

constexpr double kSeconds = 10;

// One host's agent, which exchanges records on a thread.
class Agent {
 public:
  Agent(const std::string& name, int host, int hosts, int ranks)
      : loop_(*net::EventLoop::open()), aggregator_(loop_) {
    launcher::HostJob job;
    job.host = static_cast<uint32_t>(host);
    job.hosts = static_cast<uint32_t>(hosts);
    job.ranks.resize(static_cast<size_t>(ranks));
    REQUIRE(aggregator_.listen(aggregation_socket_name(name), job).ok());
    thread_ = std::thread([this] {
      while (!is_over_) loop_.turn(Deadline::after_seconds(0.01));
    });
  }
  ~Agent() {
    is_over_ = true;
    thread_.join();
  }

 private:
  net::EventLoop loop_;
  launcher::HostAggregator aggregator_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

class Hosts {
 public:
  Hosts(int hosts, int ranks_of_each) : hosts_(hosts), ranks_of_each_(ranks_of_each) {
    for (int host = 0; host < hosts; ++host) {
      server_.run([&](Server& server) {
        REQUIRE(server.listen(*net::parse_endpoint(cat("unix:@", name(host)))).ok());
      });
      agents_.push_back(std::make_unique<Agent>(name(host), host, hosts, ranks_of_each));
    }
  }
  std::string name(int host) const { return cat("aggregator-test-", ::getpid(), "-", host); }
  int size() const { return hosts_ * ranks_of_each_; }
  RunningServer& server() { return server_; }
  std::unique_ptr<HttpStore> store_of(int rank) const {
    auto store = HttpStore::open(cat(kAgentScheme, "@", name(rank / ranks_of_each_)), test_secret(),
                                 {.ranks = size()});
    REQUIRE(store.ok());
    return *std::move(store);
  }
  // Returns the record that a rank stores.
  static Bytes record(int rank) { return to_bytes(cat("the record of rank ", rank)); }
  // Exchanges the records of these ranks concurrently. Returns the records that each rank gets.
  std::vector<Result<std::vector<Bytes>>> exchange(
      const std::vector<int>& ranks, const std::vector<std::unique_ptr<HttpStore>>& stores,
      std::string_view name, double seconds) const {
    std::vector<Result<std::vector<Bytes>>> results(ranks.size(), Status(Code::kInternal, "none"));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = stores[i]->exchange(name, {ranks[i], size(), {}}, record(ranks[i]),
                                         Deadline::after_seconds(seconds));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  const int hosts_, ranks_of_each_;
  RunningServer server_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

}  // namespace

TEST_CASE("all ranks get all records, and one rank of each host asks the store") {
  Hosts hosts(3, 4);
  std::vector<int> ranks;
  std::vector<std::unique_ptr<HttpStore>> stores;
  std::vector<Bytes> expected;
  for (int rank = 0; rank < hosts.size(); ++rank) {
    ranks.push_back(rank);
    stores.push_back(hosts.store_of(rank));
    expected.push_back(Hosts::record(rank));
  }
  for (const auto& result : hosts.exchange(ranks, stores, "a", kSeconds)) {
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    CHECK(*result == expected);
  }
  hosts.server().await_sessions(3);
  for (const auto& result : hosts.exchange(ranks, stores, "b", kSeconds)) CHECK(result.ok());
}

TEST_CASE("a rank that asks for some records alone asks the store itself") {
  Hosts hosts(2, 2);
  const auto first = hosts.store_of(0), last = hosts.store_of(3);
  CHECK(
      first->exchange("a", {0, 4, {0}}, Hosts::record(0), Deadline::after_seconds(kSeconds)).ok());
  const auto got =
      last->exchange("a", {3, 4, {0}}, Hosts::record(3), Deadline::after_seconds(kSeconds));
  REQUIRE(got.ok());
  CHECK(got->at(0) == Hosts::record(0));
}

TEST_CASE("where a rank does not come, the others are found all the same") {
  Hosts hosts(2, 2);
  const std::vector<int> ranks = {0, 1, 3};  // rank 2 does not arrive
  std::vector<std::unique_ptr<HttpStore>> stores;
  stores.reserve(ranks.size());
  for (const int rank : ranks) stores.push_back(hosts.store_of(rank));
  for (const auto& result : hosts.exchange(ranks, stores, "a", 0.6)) {
    CHECK(result.status().code() == Code::kDeadlineExceeded);
  }
  const auto look = [&](int rank) {
    return stores[0]->exchange("a", {0, 4, {rank}}, Hosts::record(0),
                               Deadline::after_seconds(0.05));
  };
  CHECK(look(1).ok());
  CHECK(look(3).ok());
  CHECK(look(2).status().code() == Code::kDeadlineExceeded);
}

TEST_CASE("when the forwarding rank ends, another forwards, and the rest get its result") {
  Hosts hosts(1, 3);
  const std::string place = aggregation_socket_name(hosts.name(0));
  std::vector<UniqueFd> ranks;
  const auto hear = [](int fd) {
    pollfd entry{fd, POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 10'000) == 1);
    auto packet = net::receive_packet(fd, "the agent");
    REQUIRE(packet.ok());
    return std::move(**packet);
  };
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(*net::connect_for_packets(place));
    const auto file = host_aggregation::to_file(Hosts::record(rank));
    REQUIRE(net::send_packet(ranks.back().get(),
                             host_aggregation::encode(host_aggregation::RankRecord{rank, "a"}),
                             {file->get()}, "the agent")
                .ok());
  }
  for (size_t alive = 3; alive > 1; --alive) {
    std::vector<pollfd> entries;
    entries.reserve(ranks.size());
    for (const UniqueFd& rank : ranks) entries.push_back({rank.get(), POLLIN, 0});
    REQUIRE(::poll(entries.data(), entries.size(), 10'000) == 1);
    size_t forwarder = 0;
    while (entries[forwarder].revents == 0) ++forwarder;
    const net::Packet request = hear(ranks[forwarder].get());
    CHECK(std::holds_alternative<host_aggregation::ForwardRequest>(
        *host_aggregation::decode(request.bytes)));
    const auto records = host_aggregation::split(
        host_aggregation::join({*host_aggregation::from_file(request.fds[0].get())}), 3);
    REQUIRE(records.ok());
    CHECK(records->at(2) == Hosts::record(2));
    if (alive == 3) {
      ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(forwarder));
      continue;
    }
    const auto file = host_aggregation::to_file(to_bytes("what all get"));
    REQUIRE(net::send_packet(ranks[forwarder].get(),
                             host_aggregation::encode(host_aggregation::AggregationResult{}),
                             {file->get()}, "the agent")
                .ok());
    const net::Packet result = hear(ranks[1 - forwarder].get());
    CHECK(as_text(*host_aggregation::from_file(result.fds[0].get())) == "what all get");
  }
}
