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
// So long before it gives up, a rank leaves its record where the others look for who is late: a
// host whose ranks are not all there has left none.
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

struct AgentStore::Word {
  gathering::Message message;
  Bytes bulk;
};

AgentStore::AgentStore(const net::Endpoint& store, int ranks, Secret secret,
                       HttpStoreOptions options)
    : HttpStore(store, std::move(secret), std::move(options)),
      place_(gathering_place(store.path.substr(1))),
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
  HVD_ASSIGN_OR_RETURN(const UniqueFd socket, net::connect_for_packets(place_));
  HVD_RETURN_IF_ERROR(tell(socket.get(), gathering::Offer{std::string(name), party.index}, record));
  HVD_ASSIGN_OR_RETURN(Word word,
                       patiently([&](Deadline until) { return hear(socket.get(), until); }));
  if (const auto* errand = std::get_if<gathering::Errand>(&word.message)) {
    const gathering::Errand where = *errand;
    HVD_ASSIGN_OR_RETURN(word.bulk, patiently([&](Deadline until) {
                           return run_errand(socket.get(), name, where, word.bulk, until);
                         }));
  } else if (!std::holds_alternative<gathering::Delivery>(word.message)) {
    return internal_error(cat(kHostAgent, " sent what only a rank sends"));
  }
  return gathering::split(word.bulk, party.count);
}

Result<Bytes> AgentStore::run_errand(int socket, std::string_view name,
                                     const gathering::Errand& errand, ByteView record,
                                     Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(
      const std::vector<Bytes> hosts,
      HttpStore::exchange(of_hosts(name), {errand.host, errand.hosts, {}}, record, deadline));
  Bytes delivery = gathering::join(hosts);
  HVD_RETURN_IF_ERROR(tell(socket, gathering::Delivery{}, delivery));
  return delivery;
}

Status AgentStore::tell(int socket, const gathering::Message& message, ByteView bulk) {
  HVD_ASSIGN_OR_RETURN(const UniqueFd file, gathering::to_file(bulk));
  // The socket has room: nothing was sent before that the agent does not take.
  return net::send_packet(socket, gathering::encode(message), {file.get()}, kHostAgent).status();
}

Result<AgentStore::Word> AgentStore::hear(int socket, Deadline deadline) {
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
    HVD_ASSIGN_OR_RETURN(gathering::Message message, gathering::decode(packet->bytes));
    HVD_ASSIGN_OR_RETURN(Bytes bulk, gathering::from_file(packet->fds[0].get()));
    return Word{std::move(message), std::move(bulk)};
  }
}

Status AgentStore::forget(std::string_view exchange, Deadline deadline) {
  HVD_RETURN_IF_ERROR(HttpStore::forget(exchange, deadline));
  return HttpStore::forget(of_hosts(exchange), deadline);
}

}  // namespace hvd::rendezvous
