// Links between hosts that delay, stall, break, or can be opened from one side only.
#include <algorithm>
#include <cstring>

#include "collectives/checks.h"
#include "collectives/relay.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// A world with a relay in front of every rank; calls `prepare` for each relay.
struct RelayedWorld {
  explicit RelayedWorld(std::vector<int> hosts, std::function<void(int32_t, Relay&)> prepare,
                        bool encrypts = false)
      : world(std::move(hosts)), store([this, prepare](collectives::PeerRecord& record) {
          const std::lock_guard lock(mutex);
          auto& relay = relays[record.rank];
          relay = std::make_unique<Relay>(record.port);
          prepare(record.rank, *relay);
          record.port = relay->port();
        }) {
    world.credentials.encrypts = encrypts;
  }

  std::mutex mutex;
  std::map<int32_t, std::unique_ptr<Relay>> relays;
  World world;
  ChangingStore store;

  std::vector<Status> run(const std::function<Status(Rank&)>& body) {
    return run_on(world, store, body);
  }
};

Status sum(Rank& rank, size_t count, const hvd_tuning* tuning = nullptr) {
  std::vector<float> values(count, static_cast<float>(rank.rank() + 1));
  std::vector<hvd_batch_tensor> tensors{
      {values.data(), values.data(), static_cast<int64_t>(count), 1, nullptr, nullptr}};
  hvd_batch batch = batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors);
  batch.tuning = tuning;
  HVD_RETURN_IF_ERROR(rank.run(batch));
  const auto expected = static_cast<float>(rank.size() * (rank.size() + 1) / 2);
  for (const float value : values) {
    if (value != expected) return internal_error(cat(value, " and not ", expected));
  }
  return {};
}

// The error may name any link: the other end may have closed its connections first.
bool names_a_link(const std::string& message) {
  return message.find("the connection between rank ") == 0 ||
         (message.find("rank ") == 0 &&
          message.find(" was lost: its connection to rank ") != std::string::npos);
}

}  // namespace

TEST_CASE("slow links change no result") {
  for (const auto& hosts : {std::vector<int>{0, 1}, {0, 0, 1}, {0, 1, 2, 3, 4}}) {
    CAPTURE(name_of_world(hosts));
    const bool encrypts = hosts.size() == 3;
    RelayedWorld relayed(
        hosts,
        [](int32_t rank, Relay& relay) { relay.delay(std::chrono::milliseconds(3 * rank % 7)); },
        encrypts);
    require_all_ok(relayed.run([](Rank& rank) -> Status {
      hvd_tuning tuning{};
      tuning.struct_size = sizeof tuning;
      tuning.chunk = 16 * 1024;
      tuning.streams = 2;
      for (const size_t count : {size_t{1}, size_t{3000}, size_t{100'000}}) {
        for (const int64_t ring_from : {-1, 1}) {
          tuning.whole_limit = tuning.doubling_limit = -1;
          tuning.direct_hosts = 2;
          tuning.ring_from = ring_from;
          HVD_RETURN_IF_ERROR(sum(rank, count, &tuning));
        }
        HVD_RETURN_IF_ERROR(sum(rank, count));
      }
      return {};
    }));
  }
}

TEST_CASE("links that stall for a while go on where they were") {
  RelayedWorld relayed({0, 1, 2}, [](int32_t, Relay& relay) { relay.stall_after(200'000); });
  require_all_ok(relayed.run([&](Rank& rank) -> Status {
    if (rank.rank() != 0) return sum(rank, 500'000);
    std::thread helper([&] {
      // Wait until any link stalls: a stalled link may keep other links from getting so far.
      const Deadline deadline = Deadline::after_seconds(200);
      bool stalled = false;
      while (!stalled && !deadline.passed()) {
        for (auto& [number, relay] : relayed.relays) {
          stalled |= relay->wait_for_stall(std::chrono::milliseconds(5));
        }
      }
      for (auto& [number, relay] : relayed.relays) relay->resume();
    });
    const Status summed = sum(rank, 500'000);
    helper.join();
    return summed;
  }));
}

TEST_CASE("links that are cut fail every rank, with a rank of another host as the cause") {
  for (const auto& hosts : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 2, 3}}) {
    CAPTURE(name_of_world(hosts));
    RelayedWorld relayed(hosts, [](int32_t, Relay& relay) { relay.cut_after(300'000); });
    const auto outcomes = relayed.run([](Rank& rank) -> Status {
      // All links are open before the cut.
      HVD_RETURN_IF_ERROR(sum(rank, 2000));
      return sum(rank, 4'000'000);
    });
    for (const Status& outcome : outcomes) {
      INFO(outcome.message());
      CHECK(outcome.code() == Code::kAborted);
      CHECK(names_a_link(outcome.message()));
    }
  }
}

TEST_CASE("encryption changes no bit of a result, and takes messages of every size") {
  for (const auto& hosts : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 2}}) {
    CAPTURE(name_of_world(hosts));
    std::vector<std::vector<float>> results[2];
    for (const bool encrypts : {false, true}) {
      World world(hosts);
      world.credentials.encrypts = encrypts;
      results[encrypts].resize(hosts.size());
      require_all_ok(world.run([&](Rank& rank) -> Status {
        int heard = 0;
        rank.on_message = [&](int32_t, ByteView) { ++heard; };
        const int32_t next = (rank.rank() + 1) % rank.size();
        for (const size_t size : {0, 1, 4000, 65'531, 65'536, 200'000}) {
          HVD_RETURN_IF_ERROR(rank.mesh().send(next, Bytes(size)));
        }
        HVD_RETURN_IF_ERROR(rank.drive([&] { return heard == 6; }));
        std::vector<float>& values = results[encrypts][static_cast<size_t>(rank.rank())];
        for (const int count : {1, 1000, 300'000}) {
          std::vector<float> part(static_cast<size_t>(count));
          for (int i = 0; i < count; ++i) part[size_t(i)] = 1.0f / float(1 + i + 3 * rank.rank());
          std::vector<hvd_batch_tensor> tensors{
              {part.data(), part.data(), count, 1, nullptr, nullptr}};
          HVD_RETURN_IF_ERROR(rank.run(batch_of(HVD_ALLREDUCE, HVD_FLOAT32, tensors)));
          values.insert(values.end(), part.begin(), part.end());
        }
        return {};
      }));
    }
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      const auto& plain = results[false][rank];
      REQUIRE(plain.size() == results[true][rank].size());
      CHECK(std::memcmp(plain.data(), results[true][rank].data(), plain.size() * sizeof(float)) ==
            0);
    }
  }
}

TEST_CASE(
    "encrypted bytes that a relay changes fail every rank with a sentence that names the link") {
  const std::map<std::string, std::function<void(Bytes&)>> changes{
      {"flip", [](Bytes& bytes) { bytes[bytes.size() / 2] ^= std::byte{4}; }},
      {"repeat",
       [](Bytes& bytes) { bytes.insert(bytes.end(), bytes.begin(), bytes.begin() + 500); }},
      {"reorder", [](Bytes& bytes) { std::swap_ranges(&bytes[0], &bytes[500], &bytes[500]); }},
      {"leave out", [](Bytes& bytes) { bytes.erase(bytes.begin(), bytes.begin() + 500); }},
      {"inject", [](Bytes& bytes) { bytes.insert(bytes.begin(), 20, std::byte{7}); }}};
  for (const auto& change : changes) {
    CAPTURE(change.first);
    RelayedWorld relayed(
        {0, 1}, [&](int32_t, Relay& relay) { relay.change_after(300'000, change.second); }, true);
    const auto outcomes = relayed.run([](Rank& rank) -> Status {
      HVD_RETURN_IF_ERROR(sum(rank, 2000));
      return sum(rank, 4'000'000);
    });
    bool is_named = false;
    for (const Status& outcome : outcomes) {
      INFO(outcome.message());
      CHECK(outcome.code() == Code::kAborted);
      CHECK(names_a_link(outcome.message()));
      is_named |=
          outcome.message().find("was changed, repeated, reordered or left out on the way") !=
          std::string::npos;
    }
    CHECK(is_named);
  }
}

TEST_CASE("two ranks of which only one can call the other meet, whoever speaks first") {
  // Refused: closed port. Silent: a listener that sends nothing. Hidden: no address.
  for (const std::string_view how : {"refused", "silent", "hidden"}) {
    for (const int32_t unreachable : {0, 1}) {
      for (const bool by_message : {true, false}) {
        // In the tree, a child sends first, and its parent connects to it if needed.
        if (by_message && unreachable == 1) continue;
        CAPTURE(how);
        CAPTURE(unreachable);
        CAPTURE(by_message);
        UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        ::bind(silent.get(), reinterpret_cast<sockaddr*>(&address), size);
        ::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size);
        if (how == "silent") ::listen(silent.get(), 16);
        World world({0, 1});
        ChangingStore store([&](collectives::PeerRecord& record) {
          if (record.rank != unreachable) return;
          record.port = ntohs(address.sin_port);
          if (how == "hidden") record.candidates.clear();
        });
        require_all_ok(run_on(world, store, [&](Rank& rank) -> Status {
          if (!by_message) return sum(rank, 10);
          int heard = 0;
          rank.on_message = [&](int32_t, ByteView) { ++heard; };
          if (rank.rank() == 1) HVD_RETURN_IF_ERROR(rank.mesh().send(0, as_bytes("hello")));
          if (rank.rank() == 0) HVD_RETURN_IF_ERROR(rank.drive([&] { return heard == 1; }));
          return sum(rank, 10);
        }));
      }
    }
  }
}

TEST_CASE("a rank that fails while a link is opening says why") {
  for (const int32_t victim : {0, 1}) {
    CAPTURE(victim);
    World world({0, 1});
    const auto outcomes = world.run([&](Rank& rank) -> Status {
      if (rank.rank() != victim) return sum(rank, 10);
      HVD_RETURN_IF_ERROR(rank.mesh().send(1 - victim, as_bytes("hello")));
      rank.mesh().fail(aborted("the dog ate rank 7"));
      return rank.mesh().failure();
    });
    for (const Status& outcome : outcomes) CHECK(outcome.message() == "the dog ate rank 7");
  }
}
