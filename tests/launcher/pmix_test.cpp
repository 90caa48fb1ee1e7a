#include <doctest/doctest.h>

#include "launcher/job/pmix_order.h"
#include "launcher/pmix/conversation.h"
#include "launcher/pmix/pmi_commands.h"

namespace hvd::launcher {

TEST_CASE("agent and PMIx helper understand each other, however their words are cut") {
  const PmixOrder order{"job", 1, {"a", "b"}, {{0, 1}, {2}}, "unix:@x", "ab"};
  const std::string bytes = pack_texts(to_texts(order)) + pack_texts({"more"});
  std::string heard;
  std::vector<PmixTexts> messages;
  for (const char byte : bytes) {
    heard += byte;
    while (auto texts = take_texts(heard)) messages.push_back(*texts);
  }
  REQUIRE(messages.size() == 2);
  CHECK(messages[1] == PmixTexts{"more"});
  const auto read = parse_pmix_order(messages[0]);
  REQUIRE(read.ok());
  CHECK(to_texts(*read) == to_texts(order));
}

TEST_CASE("orders that make no sense are refused") {
  for (const PmixTexts& texts :
       {PmixTexts{}, PmixTexts{"j", "2", "a,b", "0;1", "s", "ab"},
        PmixTexts{"j", "0", "a", "0;1", "s", "ab"}, PmixTexts{"j", "0", "a", "x", "s", "ab"},
        PmixTexts{"j", "-1", "a", "0", "s", "ab"}}) {
    CHECK(!parse_pmix_order(texts).ok());
  }
  CHECK(!parse_map("0,,1").ok());
  CHECK(!parse_map("3-1").ok());
  CHECK(!parse_map("0-").ok());
  CHECK(!parse_map("0-4194304").ok());
  CHECK(!parse_map("0-4194302;0-1").ok());
}

TEST_CASE("commands of PMI-1 are read, however they are cut") {
  const std::string bytes =
      "cmd=initack pmiid=1\ncmd=put kvsname=n key=k value=a=b\nmcmd=spawn\nnprocs=2\nendcmd\n"
      "cmd=abort exitcode=3 message=of several words\n";
  std::string received;
  std::vector<PmiCommand> commands;
  for (const char byte : bytes) {
    received += byte;
    const auto command = take_pmi_command(received);
    REQUIRE(command.ok());
    if (*command) commands.push_back(**command);
  }
  CHECK(received.empty());
  REQUIRE(commands.size() == 4);
  CHECK(commands[0].name == "initack");
  CHECK(commands[0].value("pmiid") == "1");
  CHECK(commands[1].value("value") == "a=b");
  CHECK(commands[1].value("none").empty());
  CHECK(commands[2].name == "spawn");
  CHECK(commands[3].value("exitcode") == "3");
}

TEST_CASE("a line that PMI-1 does not have ends a connection") {
  for (const std::string& bytes :
       {std::string("\n"), std::string("cmd\n"), std::string("cmd=\n"), std::string("key=value\n"),
        std::string(4097, 'x'), "mcmd=spawn\n" + std::string(65537, 'x')}) {
    std::string received = bytes;
    CHECK(!take_pmi_command(received).ok());
  }
}

TEST_CASE("MPICH reads the hosts of ranks in blocks") {
  CHECK(pmi_mapping({{0, 1}, {2, 3}}) == "(vector,(0,2,2))");
  CHECK(pmi_mapping({{0, 1}, {2}}) == "(vector,(0,1,2),(1,1,1))");
  CHECK(pmi_mapping({{0, 2}, {1, 3}}) == "(vector,(0,2,1),(0,2,1))");
  CHECK(pmi_mapping({{1}, {0}}) == "(vector,(1,1,1),(0,1,1))");
  std::vector<std::vector<int>> ranks;
  for (int rank = 0; rank < 600; rank += 3) ranks.push_back({rank, rank + 1, rank + 2});
  CHECK(pmi_mapping(ranks) == "(vector,(0,200,3))");
  for (size_t host = 0; host < 200; host += 2) {
    const int moved = ranks[host].back();
    ranks[host].pop_back();
    ranks[host + 1].push_back(moved);
  }
  CHECK(pmi_mapping(ranks).empty());
}

TEST_CASE("ranks are known to PMIx when all hosts have it") {
  std::vector<Versions> versions = {{{"Python", "3.11"}, {kPmix, ""}}, {{kPmix, ""}}};
  CHECK(take_pmix(versions));
  CHECK(versions[0] == Versions{{"Python", "3.11"}});
  CHECK(versions[1].empty());
  versions = {{{kPmix, ""}}, {}};
  CHECK(!take_pmix(versions));
  CHECK(versions[0].empty());
  std::vector<StartOrder> orders(2);
  const auto plan = plan_slots({{"a", "", 2}, {"b", "", 1}}, std::nullopt);
  REQUIRE(plan.ok());
  order_pmix(*plan, orders);
  CHECK(orders[1].environment[0] ==
        std::pair<std::string, std::string>{"HOROVOD_PMIX_HOSTS", "a,b"});
  CHECK(orders[1].environment[1] ==
        std::pair<std::string, std::string>{"HOROVOD_PMIX_RANKS", "0-1;2"});
  CHECK(*parse_map("0-1;2") == std::vector<std::vector<int>>{{0, 1}, {2}});
}

TEST_CASE("the ranks of the largest job fit into one variable") {
  constexpr size_t kMaxVariable = 128 << 10;
  std::vector<std::vector<int>> ranks(1000);
  for (int rank = 0; rank < 1'000'000; ++rank) {
    ranks[static_cast<size_t>(rank / 1000)].push_back(rank);
  }
  ranks.push_back({1'000'000, 1'000'002, 1'000'003, 1'000'004});
  const std::string text = to_ranges(ranks);
  CHECK(text.size() < kMaxVariable);
  CHECK(text.ends_with(";999000-999999;1000000,1000002-1000004"));
  CHECK(*parse_map(text) == ranks);
}

}  // namespace hvd::launcher
