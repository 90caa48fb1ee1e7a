// The tests that every controller plugin must pass. They call it through the plugin ABI only. A test file instantiates
// them with HVD_CONTROLLER_CONFORMANCE("name", links), where links is a PluginLinks.
#pragma once

#include <algorithm>

#include "conformance/plugin_world.h"

namespace hvd::test {

// A message with its sender, its sequence number, and a pattern that fills the rest.
inline std::string numbered(int32_t from, int32_t number, size_t length) {
  std::string text = std::to_string(from) + "/" + std::to_string(number) + "/";
  for (size_t i = text.size(); i < length; ++i) text += static_cast<char>('a' + (i * 7) % 26);
  return text;
}

inline void check_hosts(const PluginLinks& links) {
  run_plugin_world(links, {4, 2, 4, 0, 2}, [](PluginRank& rank) {
    const int32_t* hosts = rank.link().hosts(rank.link_context());
    CHECK(std::vector<int32_t>(hosts, hosts + 5) == std::vector<int32_t>{0, 1, 0, 2, 1});
  });
}

inline void check_order(const PluginLinks& links, const std::vector<int32_t>& machines) {
  constexpr int32_t kMessages = 300;
  run_plugin_world(links, machines, [](PluginRank& rank) {
    const auto length = [](int32_t i) { return static_cast<size_t>(i % 10 == 0 ? 9000 : i); };
    for (int32_t i = 0; i < kMessages; ++i) {
      for (int32_t to = 0; to < rank.size(); ++to) {
        CHECK(rank.send(to, numbered(rank.rank(), i, length(i))) == HVD_OK);
      }
      if (i % 7 == 0) CHECK(rank.step(false) == HVD_OK);
    }
    const auto wanted = static_cast<size_t>(kMessages * rank.size());
    CHECK(rank.step_until([&] { return rank.messages.size() >= wanted; }) == HVD_OK);
    std::map<int32_t, int32_t> next;
    bool right = rank.messages.size() == wanted;
    for (const auto& [from, text] : rank.messages) {
      const int32_t number = next[from]++;
      right &= text == numbered(from, number, length(number));
    }
    CHECK(right);
  });
}

inline void check_large_messages(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    // All ranks send first, so that no rank can receive everything before it has sent everything.
    for (int32_t to = 0; to < rank.size(); ++to) {
      CHECK(rank.send(to, numbered(rank.rank(), to, 5'000'000)) == HVD_OK);
      CHECK(rank.send(to, "") == HVD_OK);
      CHECK(rank.send(to, "small") == HVD_OK);
    }
    const auto wanted = static_cast<size_t>(3 * rank.size());
    CHECK(rank.step_until([&] { return rank.messages.size() >= wanted; }) == HVD_OK);
    std::map<int32_t, std::vector<std::string>> received;
    for (auto& [from, text] : rank.messages) received[from].push_back(std::move(text));
    for (const auto& [from, texts] : received) {
      CHECK(texts.size() == 3);
      CHECK(
          (texts == std::vector<std::string>{numbered(from, rank.rank(), 5'000'000), "", "small"}));
    }
  });
}

inline void check_no_such_rank(const PluginLinks& links) {
  run_plugin_world(links, {0, 1}, [](PluginRank& rank) {
    CHECK(rank.send(2, "x") == HVD_INVALID_ARGUMENT);
    CHECK(rank.send(-1, "x") == HVD_INVALID_ARGUMENT);
    CHECK(rank.send(1 - rank.rank(), "y") == HVD_OK);
    CHECK(rank.step_until([&] { return rank.messages.size() == 1; }) == HVD_OK);
  });
}

// Ranks pass a message around and sleep until it arrives: a lost wake-up costs a minute.
inline void check_sleep(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    const int32_t next = (rank.rank() + 1) % rank.size();
    constexpr size_t kRounds = 300;
    if (rank.rank() == 0) CHECK(rank.send(next, "token") == HVD_OK);
    for (size_t round = 1; round <= kRounds; ++round) {
      if (rank.step_until([&] { return rank.messages.size() >= round; }) != HVD_OK) {
        FAIL_CHECK(rank.error);
        return;
      }
      if (round < kRounds || rank.rank() != 0) rank.send(next, "token");
    }
  });
}

inline void check_abort(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    rank.meet(1);
    if (rank.rank() == 1) rank.link().abort(rank.link_context(), "rank 1 had enough");
    CHECK(rank.step_until([] { return false; }) == HVD_ABORTED);
    CHECK(rank.error == "rank 1 had enough");
    CHECK(rank.link().lost_rank(rank.link_context()) == -1);
  });
}

inline void check_abort_for_lost(const PluginLinks& links, const std::vector<int32_t>& machines) {
  run_plugin_world(links, machines, [](PluginRank& rank) {
    rank.meet(1);
    if (rank.rank() == 1) rank.link().abort_lost(rank.link_context(), "rank 0 is gone", 0);
    CHECK(rank.step_until([] { return false; }) == HVD_ABORTED);
    CHECK(rank.error == "rank 0 is gone");
    CHECK(rank.link().lost_rank(rank.link_context()) == 0);
  });
}

inline void check_loss(const PluginLinks& links, const std::vector<int32_t>& machines) {
  if (!links.lose) return;
  run_plugin_world(links, machines, [&](PluginRank& rank) {
    if (rank.rank() == 1) {
      links.lose(rank.store(), 1);
      return;
    }
    CHECK(rank.step_until([] { return false; }) == HVD_ABORTED);
    CHECK(rank.error.find("rank 1") != std::string::npos);
    CHECK(rank.link().lost_rank(rank.link_context()) == 1);
  });
}

inline std::vector<std::vector<int32_t>> controller_worlds() {
  return {{0, 0}, {0, 1}, {0, 0, 1, 2}};
}

}  // namespace hvd::test

#define HVD_CONTROLLER_CONFORMANCE(name, links)                                                  \
  TEST_CASE(name ": hosts are numbered by their lowest rank") { hvd::test::check_hosts(links); } \
  TEST_CASE(name ": messages of a pair arrive in order, once, whole") {                          \
    hvd::test::check_order(links, {0});                                                          \
    for (const auto& world : hvd::test::controller_worlds()) {                                   \
      hvd::test::check_order(links, world);                                                      \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": large messages pass each other, and empty ones are messages") {              \
    for (const auto& world : hvd::test::controller_worlds()) {                                   \
      hvd::test::check_large_messages(links, world);                                             \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": a rank that does not exist is refused, and the rest goes on") {              \
    hvd::test::check_no_such_rank(links);                                                        \
  }                                                                                              \
  TEST_CASE(name ": a sleeper is woken by a message") {                                          \
    for (const auto& world : hvd::test::controller_worlds()) {                                   \
      hvd::test::check_sleep(links, world);                                                      \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": an abort reaches everybody with its cause") {                                \
    for (const auto& world : hvd::test::controller_worlds()) {                                   \
      hvd::test::check_abort(links, world);                                                      \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": an abort for a lost rank names that rank to everybody") {                    \
    for (const auto& world : hvd::test::controller_worlds()) {                                   \
      hvd::test::check_abort_for_lost(links, world);                                             \
    }                                                                                            \
  }                                                                                              \
  TEST_CASE(name ": a lost rank is named to everybody") {                                        \
    for (const auto& world : hvd::test::controller_worlds()) {                                   \
      hvd::test::check_loss(links, world);                                                       \
    }                                                                                            \
  }
