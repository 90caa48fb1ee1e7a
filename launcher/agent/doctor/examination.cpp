#include "launcher/agent/doctor/examination.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/agent/doctor/host_facts.h"
#include "launcher/agent/doctor/pair_meter.h"
#include "launcher/agent/doctor/proven_stream.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/protocol/pair_rule.h"
#include "net/interfaces.h"
#include "net/socket_address.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;
using Pair = std::pair<int, int>;
using Round = std::vector<Pair>;

constexpr const char* kRole = "control ";
constexpr double kMeetSeconds = 10;  // until all hosts have connected to rank 0
constexpr double kHandshakeSeconds = 3;
constexpr double kRoundSeconds = 12;  // of one round of measurements
constexpr double kIdleSeconds = 90;   // a host that gets no order ends
constexpr size_t kMostRepeats = 4;    // rounds of suspicious pairs
constexpr int kMostConnections = 64;  // beyond those of the hosts
// A suspicious link is measured for longer.
constexpr double kLoadSeconds = 0.15, kRepeatedLoadSeconds = 0.4;

void print(const char* key, const Json& value) {
  const std::string line = Json{{key, value}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

double real_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The part of the ranks' environment that an examination uses.
struct Participant {
  int rank = 0, size = 1;
  std::string master;
  uint16_t port = 0;
  Secret secret = Secret::random();
  net::InterfaceChoice interfaces;
  net::PortRange ports;
};

Result<Participant> read_participant() {
  const auto number = [](const char* name) {
    return parse_int(environment_variable(name).value_or("")).value_or(-1);
  };
  Participant self;
  self.rank = static_cast<int>(number("HOROVOD_RANK"));
  self.size = static_cast<int>(number("HOROVOD_SIZE"));
  if (self.rank < 0 || self.size <= self.rank) {
    return failed_precondition("--doctor is for horovodrun doctor, which starts this program");
  }
  if (self.size == 1) return self;
  self.master = environment_variable("MASTER_ADDR").value_or("");
  self.port = static_cast<uint16_t>(number("MASTER_PORT"));
  HVD_ASSIGN_OR_RETURN(self.secret,
                       Secret::from_hex(environment_variable("HOROVOD_JOB_SECRET").value_or("")));
  HVD_ASSIGN_OR_RETURN(const Settings settings, Settings::from_environment());
  HVD_ASSIGN_OR_RETURN(self.interfaces,
                       net::InterfaceChoice::parse(settings.text("network_interfaces")));
  HVD_ASSIGN_OR_RETURN(self.ports, net::parse_port_range(settings.text("port_range")));
  return self;
}

// The addresses of this host that the job may use; loopback addresses last, for hosts that are this machine.
Json own_addresses(const Participant& self) {
  Json addresses = Json::array();
  const auto found = net::interface_addresses();
  if (!found.ok()) return addresses;
  for (const net::InterfaceAddress& each : *found) {
    if (self.interfaces.allows(each.interface, each.bytes))
      addresses.push_back(net::address_text(each.bytes));
  }
  return addresses;
}

// Returns the host that a message describes by its addresses and its port.
PairTarget target_of(const Json& message, int rank, double load_seconds) {
  PairTarget target{.rank = rank, .load_seconds = load_seconds};
  for (const Json& address : message.value("addresses", Json::array())) {
    if (address.is_string()) target.addresses.push_back(address.get<std::string>());
  }
  target.port = static_cast<uint16_t>(whole_in(message, "port", UINT16_MAX, 0));
  return target;
}

// The network card over which the hosts reach each other.
void print_interface(const ProvenStream& stream) {
  const std::string interface = interface_of_socket(stream.fd());
  if (!interface.empty()) print("facts", {{"interfaces", {interface_facts(interface)}}});
}

// Up to this number of hosts, each host measures its link to each other one.
constexpr int kMostForAllPairs = 8;

// Returns rounds in which each host is in at most one pair: all pairs of few hosts (the circle method of a
// tournament), else the pairs whose numbers differ in one bit, so that each host has log2(n) partners.
std::vector<Round> rounds_for(int hosts) {
  std::vector<Round> rounds;
  if (hosts <= kMostForAllPairs) {
    const int places = hosts + hosts % 2;  // with an odd number, one host rests in each round
    for (int turn = 0; turn + 1 < places; ++turn) {
      Round& round = rounds.emplace_back();
      const auto at = [&](int place) {
        return place == 0 ? 0 : 1 + (place - 1 + turn) % (places - 1);
      };
      for (int i = 0; i < places / 2; ++i) {
        const int one = at(i), other = at(places - 1 - i);
        if (one < hosts && other < hosts)
          round.emplace_back(std::min(one, other), std::max(one, other));
      }
    }
    return rounds;
  }
  for (int bit = 1; bit < hosts; bit *= 2) {
    Round& round = rounds.emplace_back();
    for (int host = 0; host < hosts; ++host) {
      if ((host & bit) == 0 && host + bit < hosts) round.emplace_back(host, host + bit);
    }
  }
  return rounds;
}

// Distributes pairs over rounds in which each host occurs once.
std::vector<Round> packed(const std::set<Pair>& pairs) {
  std::vector<Round> rounds;
  for (const Pair& pair : pairs) {
    const auto is_free = [&](const Round& round) {
      return std::ranges::none_of(round, [&](const Pair& other) {
        return other.first == pair.first || other.first == pair.second ||
               other.second == pair.first || other.second == pair.second;
      });
    };
    const auto found = std::ranges::find_if(rounds, is_free);
    if (found != rounds.end())
      found->push_back(pair);
    else
      rounds.push_back({pair});
  }
  return rounds;
}

// Rank 0's side.
class Conductor {
 public:
  explicit Conductor(const Participant& self) : self_(self) { peers_.try_emplace(0); }

  Status run() {
    HVD_RETURN_IF_ERROR(meet());
    compare_clocks();
    for (const Round& round : rounds_for(self_.size)) measure(round, false);
    const auto repeats = packed(suspicious());
    for (size_t i = 0; i < repeats.size() && i < kMostRepeats; ++i) measure(repeats[i], true);
    for (auto& [rank, peer] : peers_) {
      if (peer.stream)
        static_cast<void>(peer.stream->send({{"do", "end"}}, Deadline::after_seconds(1)));
    }
    return {};
  }

 private:
  struct Peer {
    std::optional<ProvenStream> stream{};  // none for rank 0 itself
    PairTarget target{};                   // unused for rank 0, which only measures others
  };

  // Waits until all hosts have connected, or for kMeetSeconds. Each connection has a thread, so that one without a proof
  // delays no host.
  Status meet() {
    HVD_ASSIGN_OR_RETURN(net::TcpListener listener,
                         net::TcpListener::open({self_.port, self_.port}));
    const Deadline deadline = Deadline::after_seconds(kMeetSeconds);
    std::vector<std::jthread> handshakes;
    while (!have_all_met() && !deadline.passed()) {
      constexpr int kMilliseconds = 20;  // until the next look at the hosts that have met
      pollfd waiting{listener.socket.get(), POLLIN, 0};
      if (::poll(&waiting, 1, kMilliseconds) <= 0) continue;
      GuardedFd socket = net::accept_tcp(listener);
      if (!socket || std::ssize(handshakes) > self_.size + kMostConnections) continue;
      handshakes.emplace_back([this, deadline, own = std::move(socket)]() mutable {
        receive_hello(std::move(own), earlier(deadline, kHandshakeSeconds));
      });
    }
    handshakes.clear();  // waits for them
    const MutexLock lock(mutex_);
    peers_.merge(met_);
    if (const auto first = peers_.upper_bound(0); first != peers_.end())
      print_interface(*first->second.stream);
    for (int rank = 1; rank < self_.size; ++rank) {
      if (!peers_.contains(rank)) {
        print_pair(rank, 0, {{"error", cat("cannot connect to ", self_.master, ":", self_.port)}},
                   false);
      }
    }
    return {};
  }

  bool have_all_met() {
    const MutexLock lock(mutex_);
    return std::ssize(met_) + 1 >= self_.size;
  }

  void receive_hello(GuardedFd socket, Deadline deadline) {
    auto stream = ProvenStream::accept(std::move(socket), self_.secret, kRole, deadline);
    if (!stream.ok()) return;
    const auto rank = parse_int(stream->name().substr(std::string_view(kRole).size())).value_or(-1);
    const auto hello = stream->receive(deadline);
    if (rank < 1 || rank >= self_.size || !hello.ok()) return;
    const MutexLock lock(mutex_);
    Peer& peer = met_[static_cast<int>(rank)];
    peer.stream.emplace(*std::move(stream));
    peer.target = target_of(*hello, static_cast<int>(rank), kLoadSeconds);
  }

  // Sends each host the difference between its clock and this one's.
  void compare_clocks() {
    for (auto& [rank, peer] : peers_) {
      if (!peer.stream) continue;
      const Deadline deadline = Deadline::after_seconds(1);
      const double before = real_time();
      if (!peer.stream->send({{"do", "clock"}}, deadline).ok()) continue;
      const auto answer = peer.stream->receive(deadline);
      const double after = real_time();
      if (!answer.ok()) continue;
      const double offset = number_in(*answer, "time", before) - (before + after) / 2;
      static_cast<void>(peer.stream->send({{"do", "offset"}, {"seconds", offset}}, deadline));
    }
  }

  void measure(const Round& round, bool is_repeated) {
    ++round_;
    const Deadline deadline = Deadline::after_seconds(kRoundSeconds);
    std::vector<Pair> asked;
    std::thread own;
    Json own_values;
    for (const Pair& pair : round) {
      const auto& [from, to] = pair;
      if (!peers_.contains(from) || !peers_.contains(to)) continue;
      PairTarget target = peers_[to].target;
      if (is_repeated) target.load_seconds = kRepeatedLoadSeconds;
      if (from == 0) {
        own = std::thread([&, target] { own_values = measure_pair(target, self_.secret); });
        asked.push_back(pair);
        continue;
      }
      const Json order = {{"do", "measure"},     {"round", round_},
                          {"rank", target.rank}, {"seconds", target.load_seconds},
                          {"port", target.port}, {"addresses", target.addresses}};
      if (peers_[from].stream->send(order, deadline).ok()) asked.push_back(pair);
    }
    for (const auto& [from, to] : asked) {
      Json values;
      if (from == 0) {
        own.join();
        values = own_values;
      } else {
        values = answer_of(from, deadline);
      }
      note(from, to, values);
      print_pair(from, to, values, is_repeated);
    }
  }

  // Skips late answers of earlier rounds. A host that does not answer in time is left out from then on.
  Json answer_of(int rank, Deadline deadline) {
    while (true) {
      const auto answer = peers_.at(rank).stream->receive(deadline);
      if (!answer.ok()) {
        peers_.erase(rank);  // it takes part in no further round
        return {
            {"error", cat("the host did not finish its measurement: ", answer.status().message())}};
      }
      if (whole_in(*answer, "round", round_, 0) != round_) continue;
      const Json pair = answer->value("pair", Json());
      return pair.is_object() ? pair : Json{{"error", "the host answers without a measurement"}};
    }
  }

  void note(int from, int to, const Json& values) {
    const auto add = [&](int sender, int receiver, const char* key) {
      const double speed = number_in(values, key, -1);
      if (speed >= 0) speeds_.push_back({sender, receiver, speed});
    };
    add(from, to, "send");
    add(to, from, "receive");
    if (values.contains("error") || values.contains("large_lost")) broken_.insert({from, to});
  }

  // The pairs to measure again: each slow link, and each slow host with two others that are not slow.
  std::set<Pair> suspicious() const {
    const SlowParts slow = find_slow_parts(speeds_);
    std::set<Pair> pairs = broken_;
    const auto add = [&](int one, int other) {
      pairs.insert({std::min(one, other), std::max(one, other)});
    };
    for (const auto& [ends, share] : slow.links) add(ends.first, ends.second);
    std::set<int> hosts;
    for (const auto& [host, share] : slow.senders) hosts.insert(host);
    for (const auto& [host, share] : slow.receivers) hosts.insert(host);
    for (const int host : hosts) {
      int partners = 0;
      for (const PairSpeed& speed : speeds_) {
        if (partners == 2 || (speed.from != host && speed.to != host)) continue;
        const int other = speed.from == host ? speed.to : speed.from;
        if (hosts.contains(other)) continue;
        add(host, other);
        ++partners;
      }
    }
    return pairs;
  }

  void print_pair(int from, int to, Json values, bool is_repeated) const {
    values["from"] = from;
    values["to"] = to;
    values["round"] = round_;
    values["again"] = is_repeated;
    print("pair", values);
  }

  const Participant& self_;
  Mutex mutex_;
  std::map<int, Peer> met_ HVD_GUARDED_BY(mutex_);
  std::map<int, Peer> peers_;
  std::vector<PairSpeed> speeds_;
  std::set<Pair> broken_;
  int round_ = 0;
};

// The side of all other ranks: obeys rank 0's orders.
Status follow(const Participant& self, uint16_t own_port) {
  const Deadline connect_limit = Deadline::after_seconds(kMeetSeconds);
  std::optional<ProvenStream> stream;
  while (true) {
    auto attempt = ProvenStream::connect({self.master}, self.port, self.secret,
                                         cat(kRole, self.rank), connect_limit);
    if (attempt.ok()) {
      stream.emplace(*std::move(attempt));
      break;
    }
    if (connect_limit.passed()) return attempt.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 may not listen yet
  }
  print_interface(*stream);
  HVD_RETURN_IF_ERROR(
      stream->send({{"addresses", own_addresses(self)}, {"port", own_port}}, connect_limit));
  while (true) {
    HVD_ASSIGN_OR_RETURN(const Json order, stream->receive(Deadline::after_seconds(kIdleSeconds)));
    const std::string what = text_in(order, "do");
    const Deadline deadline = Deadline::after_seconds(kRoundSeconds);
    if (what == "clock") {
      HVD_RETURN_IF_ERROR(stream->send({{"time", real_time()}}, deadline));
    } else if (what == "offset") {
      print("facts", {{"clock_offset", number_in(order, "seconds", 0)}});
    } else if (what == "measure") {
      const PairTarget target = target_of(order, whole_in(order, "rank", self.size, 0),
                                          number_in(order, "seconds", kLoadSeconds));
      const Json answer = {{"round", whole_in(order, "round", INT_MAX, 0)},
                           {"pair", measure_pair(target, self.secret)}};
      HVD_RETURN_IF_ERROR(stream->send(answer, deadline));
    } else {
      return {};
    }
  }
}

void measure_links(const Participant& self) {
  try {
    const auto server = PairServer::open(self.secret, self.ports, self.rank);
    Status status = server.status();
    if (status.ok()) status = self.rank == 0 ? Conductor(self).run() : follow(self, server->port());
    if (!status.ok()) print("facts", {{"network_error", status.message()}});
  } catch (const std::exception& thrown) {  // no thread can be started
    print("facts", {{"start_error", status_of(thrown).message()}});
  }
}

}  // namespace

int examine_host(const std::string& level, const std::string& hosts,
                 const std::vector<std::string>& command) {
  const auto self = read_participant();
  if (!self.ok()) {
    std::fprintf(stderr, "horovod-agent: %s\n", self.status().message().c_str());
    return 2;
  }
  const ProcessorTime before = processor_time();
  print("facts", quick_facts());
  if (level == "quick") return 0;
  // The hosts meet before they read facts that may take a minute on one of them.
  if (self->size > 1) measure_links(*self);
  print("facts", {{"names_missing", missing_names(split(hosts, ','))}});
  print("facts", further_facts(level, command));
  const ProcessorTime after = processor_time();
  if (after.all > before.all) {
    const double share = (after.stolen - before.stolen) / (after.all - before.all);
    print("facts", {{"steal_percent", 100 * share}});
  }
  return 0;
}

}  // namespace hvd::launcher
