#include "rendezvous/client/agent_store.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/log/log.h"
#include "base/text.h"
#include "net/packet_socket.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kHostAgent = "this host's agent";
// While a rank of a host is late, the host stores no record. At most this many seconds before the deadline, each
// other rank of the host stores its own record, so that the error names only the late ranks.
constexpr double kShowBefore = 2;
constexpr double kShowSeconds = 1;

std::string of_hosts(std::string_view exchange) { return cat("hosts/", exchange); }

Deadline before(Deadline deadline) {
  const double left = deadline.seconds_left();
  return deadline.is_never() ? deadline
                             : Deadline::after_seconds(std::max(left / 2, left - kShowBefore));
}

bool is_late(const Status& status) { return status.code() == Code::kDeadlineExceeded; }

}  // namespace

struct AgentStore::AgentReply {
  host_aggregation::Message message;
  Bytes bulk;
};

AgentStore::AgentStore(const net::Endpoint& store, int ranks, Secret secret,
                       HttpStoreOptions options)
    : HttpStore(store, std::move(secret), std::move(options)),
      socket_name_(aggregation_socket_name(store.path.substr(1))),
      ranks_(ranks) {}

Result<std::vector<Bytes>> AgentStore::exchange(std::string_view name, const Party& party,
                                                ByteView record, Deadline deadline) {
  if (!party.wanted.empty() || party.count != ranks_) {
    return HttpStore::exchange(name, party, record, deadline);
  }
  const auto patiently = [&](auto attempt) {
    auto result = attempt(before(deadline));
    if (result.ok() || !is_late(result.error()) || deadline.passed()) return result;
    const auto shown = HttpStore::exchange(name, {party.index, party.count, {party.index}}, record,
                                           Deadline::after_seconds(kShowSeconds));
    if (!shown.ok()) log::debug(shown.error().message());
    return attempt(deadline);
  };
  HVD_ASSIGN_OR_RETURN(const UniqueFd socket, net::connect_for_packets(socket_name_));
  HVD_RETURN_IF_ERROR(
      send(socket.get(), host_aggregation::RankRecord{party.index, std::string(name)}, record));
  HVD_ASSIGN_OR_RETURN(AgentReply reply,
                       patiently([&](Deadline until) { return receive(socket.get(), until); }));
  if (const auto* request = std::get_if<host_aggregation::ForwardRequest>(&reply.message)) {
    const host_aggregation::ForwardRequest where = *request;
    HVD_ASSIGN_OR_RETURN(reply.bulk, patiently([&](Deadline until) {
                           return forward(socket.get(), name, where, reply.bulk, until);
                         }));
  } else if (!std::holds_alternative<host_aggregation::AggregationResult>(reply.message)) {
    return internal_error(cat(kHostAgent, " sent a message that only ranks send"));
  }
  return host_aggregation::split(reply.bulk, party.count);
}

Result<Bytes> AgentStore::forward(int socket, std::string_view name,
                                  const host_aggregation::ForwardRequest& request, ByteView record,
                                  Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(
      const std::vector<Bytes> hosts,
      HttpStore::exchange(of_hosts(name), {request.host, request.hosts, {}}, record, deadline));
  Bytes result = host_aggregation::join(hosts);
  HVD_RETURN_IF_ERROR(send(socket, host_aggregation::AggregationResult{}, result));
  return result;
}

Status AgentStore::send(int socket, const host_aggregation::Message& message, ByteView bulk) {
  HVD_ASSIGN_OR_RETURN(const UniqueFd file, host_aggregation::to_file(bulk));
  // The socket buffer has room, since the agent has read all earlier messages of this socket.
  return net::send_packet(socket, host_aggregation::encode(message), {file.get()}, kHostAgent)
      .status();
}

Result<AgentStore::AgentReply> AgentStore::receive(int socket, Deadline deadline) {
  for (;;) {
    pollfd entry{socket, POLLIN, 0};
    const int count = ::poll(&entry, 1, deadline.poll_timeout());
    if (count < 0 && errno != EINTR)
      return system_error(cat("cannot wait for ", kHostAgent), errno);
    if (count == 0) return deadline_exceeded("not all ranks left their records in time");
    HVD_ASSIGN_OR_RETURN(auto packet, net::receive_packet(socket, kHostAgent));
    if (!packet) continue;
    if (packet->bytes.empty()) return unavailable(cat(kHostAgent, " has ended"));
    if (packet->fds.size() != 1) return internal_error(cat(kHostAgent, " sent no records"));
    HVD_ASSIGN_OR_RETURN(host_aggregation::Message message,
                         host_aggregation::decode(packet->bytes));
    HVD_ASSIGN_OR_RETURN(Bytes bulk, host_aggregation::from_file(packet->fds[0].get()));
    return AgentReply{std::move(message), std::move(bulk)};
  }
}

Status AgentStore::forget(std::string_view exchange, Deadline deadline) {
  HVD_RETURN_IF_ERROR(HttpStore::forget(exchange, deadline));
  return HttpStore::forget(of_hosts(exchange), deadline);
}

}  // namespace hvd::rendezvous
