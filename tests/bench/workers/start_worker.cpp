// Simulates the start-up of a large job from the clients' side: each party sends hello, requests
// its place, stores its record, and receives the records of its host and its links, or of all. A
// party is a rank, or a host that acts for its ranks. One epoll loop runs all parties.
//
//   start_worker SOCKET RANK TOKEN_FILE
//
//   start PORT HOSTS PARTIES_PER_HOST RECORD_BYTES links|all
//                                  seconds until all parties have all records, MiB received
#include <sys/epoll.h>
#include <sys/resource.h>

#include <memory>
#include <set>

#include "store_wire.h"
#include "worker.h"

namespace {

using hvd::cat;

constexpr int kDialling = 1000;     // parallel connections without a reply to hello
constexpr uint32_t kAddresses = 8;  // loopback addresses with all ports each

struct Client {
  Client(const hvd::Secret& secret, int n) : number(n), signer(secret) {}
  enum class Stage { kHello, kJoin, kExchange } stage = Stage::kHello;
  int fd = -1;
  int number;
  bench::Signer signer;
  std::string input;
};

class StartUp {
 public:
  StartUp(const hvd::Secret& secret, uint16_t port, int hosts, int parties, size_t record_bytes,
          bool wants_all)
      : secret_(secret),
        port_(port),
        parties_(parties),
        size_(hosts * parties),
        record_bytes_(record_bytes),
        wants_all_(wants_all) {
    const rlim_t wanted = static_cast<rlim_t>(size_) + 100;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::max(limit.rlim_cur, wanted);
    limit.rlim_max = std::max(limit.rlim_max, wanted);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) bench::fail(cat("no ", wanted, " descriptors"));
  }

  std::vector<double> run() {
    const double start = bench::now_us();
    for (int i = 0; i < kDialling; ++i) dial();
    std::vector<epoll_event> events(1024);
    while (left_ > 0) {
      const int count = ::epoll_wait(epoll_, events.data(), int(events.size()), 60'000);
      if (count <= 0) throw std::runtime_error(cat("no event for 60 s; ", left_, " are left"));
      for (int i = 0; i < count; ++i) {
        advance(*static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr));
      }
    }
    const double seconds = (bench::now_us() - start) / 1e6;
    for (const auto& client : clients_) ::close(client->fd);
    ::close(epoll_);
    return {seconds, received_ / (1 << 20)};
  }

 private:
  void dial() {
    if (static_cast<int>(clients_.size()) == size_) return;
    const int number = static_cast<int>(clients_.size());
    Client& client = *clients_.emplace_back(std::make_unique<Client>(secret_, number));
    client.fd = bench::connect_to_port(port_, 1 + static_cast<uint32_t>(number) % kAddresses);
    epoll_event event{EPOLLIN, {.ptr = &client}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, client.fd, &event);
    send(client, client.signer.hello());
  }

  static void send(const Client& client, std::string_view bytes) {
    if (::write(client.fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      bench::fail("cannot write to the server");
    }
  }

  void advance(Client& client) {
    const ssize_t size = ::read(client.fd, buffer_.data(), buffer_.size());
    if (size <= 0) throw std::runtime_error("the server closed a connection");
    received_ += static_cast<double>(size);
    client.input.append(buffer_.data(), static_cast<size_t>(size));
    if (bench::end_of_message(client.input) == 0) return;
    if (!client.input.starts_with("HTTP/1.1 200")) throw std::runtime_error(client.input);
    const std::string response = std::exchange(client.input, {});
    switch (client.stage) {
      case Client::Stage::kHello:
        return join(client, response);
      case Client::Stage::kJoin:
        return exchange(client, response);
      case Client::Stage::kExchange:
        --left_;
    }
  }

  void join(Client& client, std::string_view response) {
    client.signer.take_hello(response);
    client.stage = Client::Stage::kJoin;
    send(client,
         client.signer.request("POST", cat("/v1/join?client=w", client.number, "&wait=600000"),
                               cat("{\"host\": \"h", client.number / parties_, "\"}")));
    dial();
  }

  void exchange(Client& client, std::string_view response) {
    constexpr std::string_view kRank = "\"rank\":";
    const int rank =
        std::stoi(std::string(response.substr(response.find(kRank) + kRank.size(), 9)));
    std::set<int> wanted;
    for (int i = 0; i < parties_ && !wants_all_; ++i) wanted.insert(rank / parties_ * parties_ + i);
    for (const int step : {1, size_ - 1}) {
      if (!wants_all_) wanted.insert((rank + step) % size_);
    }
    for (int bit = 1; bit < size_ && !wants_all_; bit *= 2) {
      if ((rank ^ bit) < size_) wanted.insert(rank ^ bit);
    }
    std::string list;
    for (const int one : wanted) list += cat(list.empty() ? "" : ",", one);
    client.stage = Client::Stage::kExchange;
    send(client,
         client.signer.request("POST",
                               cat("/v1/exchange/rank?count=", size_, "&index=", rank,
                                   "&wait=600000", wants_all_ ? "" : "&want=", list),
                               std::string(record_bytes_, static_cast<char>('a' + rank % 26))));
  }

  const hvd::Secret& secret_;
  const uint16_t port_;
  const int parties_, size_;
  const size_t record_bytes_;
  const bool wants_all_;
  double received_ = 0;
  int left_ = size_;
  const int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::unique_ptr<Client>> clients_;
  std::array<char, 65536> buffer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const hvd::Secret secret = bench::secret_of(argv[3]);
  bench::serve(argv[1], std::stoi(argv[2]),
               {{"start", [&](const bench::Words& words) {
                   StartUp start(secret, static_cast<uint16_t>(std::stoi(words.at(0))),
                                 std::stoi(words.at(1)), std::stoi(words.at(2)),
                                 std::stoul(words.at(3)), words.at(4) == "all");
                   return start.run();
                 }}});
  return 0;
}
