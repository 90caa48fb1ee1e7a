#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/text.h"
#include "launcher/pmix/conversation.h"
#include "launcher/pmix/pmi_commands.h"
#include "launcher/pmix/pmi_server.h"
#include "launcher/reach/host_jobs.h"
#include "net/endpoint.h"
#include "net/socket_address.h"
#include "rendezvous/memory_store.h"

namespace hvd::launcher {
namespace {

// The server of one host, never destroyed because its threads never end.
class PmiHost {
 public:
  static PmiHost& open(const PmixOrder& order, rendezvous::Store* store = nullptr) {
    static auto* const kAll = new std::vector<std::unique_ptr<PmiHost>>;
    kAll->push_back(std::unique_ptr<PmiHost>(new PmiHost(order, store)));
    return *kAll->back();
  }
  std::vector<std::string> failures() {
    const MutexLock lock(mutex_);
    return failures_;
  }
  const std::string& name() const { return name_; }

 private:
  PmiHost(const PmixOrder& order, rendezvous::Store* store)
      : server_(order, store,
                {[this](int rank) {
                   const MutexLock lock(mutex_);
                   return ++starts_[rank];
                 },
                 [] {},
                 [this](const std::string& sentence) {
                   const MutexLock lock(mutex_);
                   failures_.push_back(sentence);
                 }}),
        name_(*server_.listen()) {}

  Mutex mutex_;
  std::map<int, int> starts_;
  std::vector<std::string> failures_;
  PmiServer server_;
  std::string name_;
};

// A program of MPI and its replies. Returns an empty line at the end or after 20 s without a line.
class PmiProgram {
 public:
  PmiProgram(const PmiHost& host, int rank) {
    const auto address =
        net::numeric_address({net::Endpoint::Family::kUnix, cat("@", host.name()), {}, 0});
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{20, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    REQUIRE(::connect(socket_.get(), address->get(), address->size) == 0);
    CHECK(ask(cat("cmd=initack pmiid=", rank)) == "cmd=initack rc=0");
    for (int i = 0; i < 3; ++i) line();
    kvs_ = ask("cmd=get_my_kvsname").substr(std::string("cmd=my_kvsname ").size());
    kvs_ = kvs_.substr(0, kvs_.find(' '));
  }
  void say(const std::string& text) {
    const std::string all = text + "\n";
    (void)!::send(socket_.get(), all.data(), all.size(), MSG_NOSIGNAL);
  }
  std::string line() {
    std::string text;
    for (char byte; ::read(socket_.get(), &byte, 1) == 1 && byte != '\n';) text += byte;
    return text;
  }
  std::string ask(const std::string& text) {
    say(text);
    return line();
  }
  // Returns whether the server has closed the connection.
  bool is_closed() {
    char byte;
    return ::read(socket_.get(), &byte, 1) == 0;
  }
  std::string put(const std::string& key, const std::string& value) {
    return ask(cat("cmd=put ", kvs_, " key=", key, " value=", value));
  }
  std::string get(const std::string& key) { return ask(cat("cmd=get ", kvs_, " key=", key)); }
  void end() { socket_.reset(); }

 private:
  UniqueFd socket_;
  std::string kvs_;  // "kvsname=..."
};

constexpr const char* kBarrier = "cmd=barrier_in";
constexpr const char* kOut = "cmd=barrier_out rc=0";

}  // namespace

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

TEST_CASE("a barrier fails when a program of MPI ends in it, and the next programs meet") {
  PmiHost& host = PmiHost::open({"job", 0, {"a"}, {{0, 1, 2}}, "", ""});
  for (const bool is_waiting : {true, false}) {
    PmiProgram first(host, 0), second(host, 1);
    first.say(kBarrier);
    if (is_waiting) second.say(kBarrier);
    second.end();
    CHECK(first.is_closed());
    PmiProgram third(host, 2);
    third.say(kBarrier);
    CHECK(third.is_closed());
  }
  CHECK(host.failures() ==
        std::vector<std::string>(2,
                                 "a barrier of MPI fails, as in MPI_Init: rank 1 has left its "
                                 "program of MPI before MPI_Finalize"));
  PmiProgram first(host, 0), second(host, 1), third(host, 2);
  for (int barrier = 0; barrier < 3; ++barrier) {
    CHECK(third.put(cat("k", barrier), "v=w").find("rc=0") != std::string::npos);
    for (PmiProgram* each : {&first, &second, &third}) each->say(kBarrier);
    for (PmiProgram* each : {&first, &second, &third}) CHECK(each->line() == kOut);
    CHECK(first.get(cat("k", barrier)) == "cmd=get_result rc=0 msg=success value=v=w");
  }
  CHECK(host.failures().size() == 2);
}

TEST_CASE("a program of MPI that ends fails the barriers of all hosts") {
  auto* const store = new rendezvous::MemoryStore;  // lives as long as the servers
  PmixOrder order{"job", 0, {"a", "b"}, {{0}, {1, 2}}, "", ""};
  PmiHost& a = PmiHost::open(order, store);
  order.host = 1;
  PmiHost& b = PmiHost::open(order, store);
  PmiProgram first(a, 0), second(b, 1), third(b, 2);
  CHECK(second.put("key", "value").find("rc=0") != std::string::npos);
  for (PmiProgram* each : {&first, &second, &third}) each->say(kBarrier);
  for (PmiProgram* each : {&first, &second, &third}) CHECK(each->line() == kOut);
  CHECK(first.get("key") == "cmd=get_result rc=0 msg=success value=value");
  first.say(kBarrier);
  second.end();
  CHECK(first.is_closed());
  third.say(kBarrier);
  CHECK(third.is_closed());
  REQUIRE((a.failures().size() == 1 && b.failures().size() == 1));
  CHECK(a.failures()[0].find("rank 1 has left") != std::string::npos);

  // The last process of the host has entered the exchange with other hosts.
  PmiProgram fourth(a, 0), fifth(b, 1), sixth(b, 2);
  fifth.say(kBarrier);
  sixth.say(kBarrier);
  fifth.end();
  CHECK(sixth.is_closed());
  first.end();
  fourth.say(kBarrier);
  if (fourth.line() == kOut) fourth.say(kBarrier);
  CHECK(fourth.is_closed());
}

TEST_CASE("a program of MPI that finalizes often ends once") {
  PmiHost& host = PmiHost::open({"job", 0, {"a"}, {{0, 1}}, "", ""});
  PmiProgram first(host, 0), second(host, 1);
  CHECK(second.put("key", "value").find("rc=0") != std::string::npos);
  for (int i = 0; i < 3; ++i) CHECK(first.ask("cmd=finalize") == "cmd=finalize_ack rc=0");
  CHECK(second.get("key").find("rc=0") != std::string::npos);
  first.say(kBarrier);
  CHECK(first.is_closed());
  second.say(kBarrier);
  second.say("cmd=finalize");
  CHECK(second.is_closed());
}

TEST_CASE("a key that would differ between hosts is refused, and nonsense is named once") {
  PmiHost& host = PmiHost::open({"job", 0, {"a"}, {{0}}, "", ""});
  PmiProgram program(host, 0);
  CHECK(program.put("a=b", "c") == "cmd=put_result rc=-1 msg=refused");
  CHECK(program.put("", "c") == "cmd=put_result rc=-1 msg=refused");
  CHECK(host.failures().empty());
  for (int i = 0; i < 3; ++i) {
    PmiProgram other(host, 0);
    other.say("nonsense");
    CHECK(other.is_closed());
  }
  CHECK(host.failures() ==
        std::vector<std::string>{
            "a connection of rank 0 to PMI-1 is closed, so that MPI fails "
            "there: a line of PMI-1 begins with cmd=; --no-pmix leaves PMI-1 out"});
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
  order_pmix(HostTable(*plan), orders);
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
