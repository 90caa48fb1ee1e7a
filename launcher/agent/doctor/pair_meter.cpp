#include "launcher/agent/doctor/pair_meter.h"

// <netinet/tcp.h> cannot be used, because its tcp_info lacks the count of segments.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <system_error>

#include "base/text.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

// The echoes end after some time: 200 of them would take seconds on a slow link.
constexpr size_t kEchoes = 200, kFewestEchoes = 5;
constexpr double kEchoSeconds = 0.1;
constexpr size_t kEchoSize = 64;
constexpr size_t kLargeSize = 64 << 10;
constexpr double kLargeSeconds = 2;
constexpr double kMostLoadSeconds = 1;
constexpr double kConnectSeconds = 3;
constexpr double kMostSeconds = 8;  // of one measurement
constexpr size_t kBlock = 64 << 10;
constexpr int kMostClients = 16;

std::string role_of(int rank) { return cat("measure ", rank, ";"); }

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Keeps little unsent data in the socket, so that the time of the load ends with the load.
void limit_unsent(int socket) {
  const int bytes = 128 << 10;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

// The share of segments that this end has sent again; -1: unknown.
double retransmitted(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return -1;
  const double segments = info.tcpi_segs_out;
  return segments > 0 ? info.tcpi_total_retrans / segments : -1;
}

// Sends blocks for this time. The first byte of the last block is 0.
Status fill(ProvenStream& stream, double seconds, Deadline deadline) {
  Bytes block(kBlock);
  limit_unsent(stream.fd());
  const auto begin = Clock::now();
  bool is_last = false;
  while (!is_last) {
    is_last = seconds_since(begin) >= seconds;
    block[0] = is_last ? std::byte{0} : std::byte{1};
    HVD_RETURN_IF_ERROR(stream.write(block, deadline));
  }
  return {};
}

// Reads the blocks of fill(). Returns bytes per second.
Result<double> drain(ProvenStream& stream, Deadline deadline) {
  Bytes block(kBlock);
  HVD_RETURN_IF_ERROR(stream.read(block, deadline));
  const auto begin = Clock::now();  // the first block is not counted: its time began at the sender
  double bytes = 0;
  while (block[0] != std::byte{0}) {
    HVD_RETURN_IF_ERROR(stream.read(block, deadline));
    bytes += static_cast<double>(kBlock);
  }
  const double seconds = seconds_since(begin);
  return seconds > 0 ? bytes / seconds : 0;
}

// Returns the messages of ping() and try_large(), until the first byte of one is 0.
Status echo(ProvenStream& stream, size_t size, Deadline deadline) {
  Bytes bytes(size, std::byte{1});
  while (bytes[0] != std::byte{0}) {
    HVD_RETURN_IF_ERROR(stream.read(bytes, deadline));
    HVD_RETURN_IF_ERROR(stream.write(bytes, deadline));
  }
  return {};
}

Status ping(ProvenStream& stream, Json& values, Deadline deadline) {
  HVD_RETURN_IF_ERROR(stream.send({{"do", "echo"}}, deadline));
  Bytes bytes(kEchoSize, std::byte{1});
  std::vector<double> times;
  const auto first = Clock::now();
  bool is_last = false;
  while (!is_last) {
    const auto begin = Clock::now();
    const size_t number = times.size() + 1;
    is_last = number == kEchoes || (number >= kFewestEchoes && seconds_since(first) > kEchoSeconds);
    bytes[0] = is_last ? std::byte{0} : std::byte{1};
    HVD_RETURN_IF_ERROR(stream.write(bytes, deadline));
    HVD_RETURN_IF_ERROR(stream.read(bytes, deadline));
    times.push_back(seconds_since(begin));
  }
  std::ranges::sort(times);
  values["latency_min"] = times.front();
  values["latency_p50"] = times[times.size() / 2];
  values["latency_p99"] = times[times.size() * 99 / 100];
  return {};
}

Status try_large(ProvenStream& stream, Json& values, Deadline deadline) {
  const Deadline limit = earlier(deadline, kLargeSeconds);
  HVD_RETURN_IF_ERROR(stream.send({{"do", "echo_large"}}, limit));
  Bytes bytes(kLargeSize);
  Status status = stream.write(bytes, limit);
  if (status.ok()) status = stream.read(bytes, limit);
  if (status.code() == Code::kDeadlineExceeded) values["large_lost"] = true;
  return status;
}

Status load(ProvenStream& stream, double seconds, Json& values, Deadline deadline) {
  HVD_RETURN_IF_ERROR(stream.send({{"do", "drain"}}, deadline));
  HVD_RETURN_IF_ERROR(fill(stream, seconds, deadline));
  HVD_ASSIGN_OR_RETURN(const Json drained, stream.receive(deadline));
  values["send"] = number_in(drained, "speed", -1);
  HVD_RETURN_IF_ERROR(stream.send({{"do", "fill"}, {"seconds", seconds}}, deadline));
  HVD_ASSIGN_OR_RETURN(values["receive"], drain(stream, deadline));
  HVD_ASSIGN_OR_RETURN(const Json filled, stream.receive(deadline));
  const double own = retransmitted(stream.fd()), other = number_in(filled, "retransmits", -1);
  if (own >= 0 || other >= 0) values["retransmits"] = std::max(own, other);
  return stream.send({{"do", "end"}}, deadline);
}

}  // namespace

// Each request is a message with the key "do".
Status serve_pair(ProvenStream& stream) {
  const Deadline deadline = Deadline::after_seconds(kMostSeconds);
  while (true) {
    HVD_ASSIGN_OR_RETURN(const Json request, stream.receive(deadline));
    const std::string what = text_in(request, "do");
    if (what == "echo") {
      HVD_RETURN_IF_ERROR(echo(stream, kEchoSize, deadline));
    } else if (what == "echo_large") {
      HVD_RETURN_IF_ERROR(echo(stream, kLargeSize, deadline));
    } else if (what == "drain") {
      HVD_ASSIGN_OR_RETURN(const double speed, drain(stream, deadline));
      HVD_RETURN_IF_ERROR(stream.send({{"speed", speed}}, deadline));
    } else if (what == "fill") {
      const double seconds = std::min(number_in(request, "seconds", 0), kMostLoadSeconds);
      HVD_RETURN_IF_ERROR(fill(stream, seconds, deadline));
      HVD_RETURN_IF_ERROR(stream.send({{"retransmits", retransmitted(stream.fd())}}, deadline));
    } else {
      return {};
    }
  }
}

Result<PairServer> PairServer::open(const Secret& secret, const net::PortRange& ports, int rank) {
  HVD_ASSIGN_OR_RETURN(net::TcpListener listener, net::TcpListener::open(ports));
  PairServer server(listener.port);
  const auto shared = std::make_shared<net::TcpListener>(std::move(listener));
  const auto clients = std::make_shared<std::atomic<int>>(0);
  std::thread([=, secret = secret] {
    while (true) {
      pollfd waiting{shared->socket.get(), POLLIN, 0};
      ::poll(&waiting, 1, -1);
      GuardedFd socket = net::accept_tcp(*shared);
      if (!socket || *clients >= kMostClients) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(10));  // a lack of descriptors may pass
        continue;
      }
      ++*clients;
      try {
        std::thread([=, client = std::make_shared<GuardedFd>(std::move(socket))] {
          auto stream = ProvenStream::accept(std::move(*client), secret, role_of(rank),
                                             Deadline::after_seconds(kConnectSeconds));
          if (stream.ok()) static_cast<void>(serve_pair(*stream));
          --*clients;
        }).detach();
      } catch (const std::system_error&) {  // no more threads are allowed
        --*clients;
      }
    }
  }).detach();
  return server;
}

Json measure_pair(const PairTarget& target, const Secret& secret) {
  Json values = Json::object();
  const Deadline deadline = Deadline::after_seconds(kMostSeconds);
  auto stream = ProvenStream::connect(target.addresses, target.port, secret, role_of(target.rank),
                                      Deadline::after_seconds(kConnectSeconds));
  if (!stream.ok()) {
    values["error"] = cat("cannot connect to ", stream.status().message());
    return values;
  }
  values["address"] = stream->address();
  Status status = ping(*stream, values, deadline);
  if (status.ok()) status = try_large(*stream, values, deadline);
  if (status.ok()) status = load(*stream, target.load_seconds, values, deadline);
  if (!status.ok() && !values.contains("large_lost")) values["error"] = status.message();
  return values;
}

}  // namespace hvd::launcher
