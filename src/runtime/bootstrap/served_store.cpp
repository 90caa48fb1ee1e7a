#include "runtime/bootstrap/served_store.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/process/signals.h"
#include "base/text.h"
#include "net/blocking_stream.h"
#include "net/endpoint.h"
#include "net/interfaces.h"
#include "net/socket_address.h"
#include "net/tcp_transport.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kHereKey = "here";
// The time limit of a request, since a connected store replies at once.
constexpr double kStoreAnswerSeconds = 10;

// Maximum number of unauthenticated connections: most descriptors must stay free for the user's program.
constexpr size_t kMostUnproven = 1024;

// Returns this host's addresses of 4 or 16 bytes, or only loopback if no other address exists.
Result<std::vector<Bytes>> addresses_of(const net::InterfaceChoice& choice) {
  HVD_ASSIGN_OR_RETURN(std::vector<net::InterfaceAddress> all, net::interface_addresses());
  if (all.empty()) {
    HVD_ASSIGN_OR_RETURN(all, net::interface_addresses(true));
  }
  std::vector<Bytes> addresses;
  for (const net::InterfaceAddress& address : all) {
    if (choice.allows(address.interface, address.bytes)) addresses.push_back(address.bytes);
  }
  if (addresses.empty()) {
    return invalid_argument("HOROVOD_NETWORK_INTERFACES allows none of this host's addresses");
  }
  return addresses;
}

std::string list_of(std::span<const net::Endpoint> endpoints) {
  std::string text;
  for (const net::Endpoint& endpoint : endpoints) {
    text += cat(text.empty() ? "" : ", ", net::to_string(endpoint));
  }
  return text;
}

// Rank 0 shares this text if it has no store.
constexpr std::string_view kNoStore = "none";

}  // namespace

ServedStore::ServedStore(const Secret& secret)
    : work_(loop_.get_executor()),
      server_(std::make_unique<rendezvous::Server>(
          loop_.get_executor(),
          rendezvous::ServerOptions{.secret = secret, .limits = {.unproven = kMostUnproven}})) {}

Result<std::unique_ptr<ServedStore>> ServedStore::start(const Secret& secret,
                                                        const WorkerSettings& settings) {
  std::unique_ptr<ServedStore> store(new ServedStore(secret));
  HVD_RETURN_IF_ERROR(store->listen(settings));
  const AllSignalsBlocked blocked;  // only the user's threads get signals
  store->thread_ = std::thread([raw = store.get()] {
    ::pthread_setname_np(::pthread_self(), "hvd-store");
    raw->loop_.run();
  });
  return store;
}

Status ServedStore::listen(const WorkerSettings& settings) {
  HVD_ASSIGN_OR_RETURN(const auto choice, net::InterfaceChoice::parse(settings.network_interfaces));
  HVD_ASSIGN_OR_RETURN(const auto addresses, addresses_of(choice));
  HVD_ASSIGN_OR_RETURN(const auto ports, net::parse_port_range(settings.port_range));
  const auto listeners = net::TcpListener::open_at(addresses, ports);
  if (!listeners.ok()) return listeners.error().with_context("serving the store of the job");
  for (const net::TcpListener& listener : *listeners) {
    // The server owns a duplicate of the descriptor.
    UniqueFd fd(::fcntl(listener.socket.get(), F_DUPFD_CLOEXEC, 3));
    if (!fd) return system_error("serving the store of the job", errno);
    HVD_ASSIGN_OR_RETURN(net::Endpoint endpoint, server_->listen(std::move(fd)));
    endpoints_.push_back(std::move(endpoint));
  }
  return {};
}

ServedStore::~ServedStore() {
  if (!thread_.joinable()) return;
  net::asio::post(loop_, [this] { server_->close(); });
  work_.reset();
  thread_.join();
}

std::string invitation(const Secret& secret, std::span<const net::Endpoint> endpoints) {
  std::string text = secret.hex();
  for (const net::Endpoint& endpoint : endpoints) text += cat("\n", net::to_string(endpoint));
  return text;
}

Result<Invitation> parse_invitation(std::string_view text) {
  Invitation invitation;
  for (const std::string& line : split(text, '\n')) {
    if (invitation.secret.empty()) {
      HVD_RETURN_IF_ERROR(
          Secret::from_hex(line).status().with_context("the secret that rank 0 sent"));
      invitation.secret = line;
      continue;
    }
    HVD_ASSIGN_OR_RETURN(net::Endpoint endpoint, net::parse_endpoint(line));
    invitation.endpoints.push_back(std::move(endpoint));
  }
  if (invitation.endpoints.empty()) return invalid_argument("rank 0 told no address of its store");
  return invitation;
}

Result<std::shared_ptr<rendezvous::HttpStore>> reach_store(const Invitation& invitation,
                                                           int32_t rank, int32_t leader,
                                                           Deadline deadline) {
  std::vector<net::SocketAddress> addresses;
  for (const net::Endpoint& endpoint : invitation.endpoints) {
    if (const auto address = net::numeric_address(endpoint)) addresses.push_back(*address);
  }
  Status why = unavailable("none of them is an address");
  while (!addresses.empty() && !deadline.passed()) {
    auto stream = net::BlockingStream::connect(addresses, deadline);
    if (!stream.ok()) {
      why = stream.error();
      break;
    }
    HVD_ASSIGN_OR_RETURN(const net::SocketAddress peer, net::peer_address(stream->fd()));
    HVD_ASSIGN_OR_RETURN(Secret secret, Secret::from_hex(invitation.secret));
    auto store = std::make_shared<rendezvous::HttpStore>(
        net::to_endpoint(peer), std::move(secret),
        rendezvous::HttpStoreOptions{.reconnect_seconds = kStoreAnswerSeconds});
    const auto answer = store->list(kHereKey, Deadline::after_seconds(kStoreAnswerSeconds));
    if (answer.ok()) return store;
    why = answer.error();
    std::erase_if(addresses, [&](const net::SocketAddress& address) {
      return net::to_endpoint(address) == net::to_endpoint(peer);
    });
  }
  return unavailable(cat("rank ", rank, " cannot reach the store of rank ", leader, " at any of ",
                         list_of(invitation.endpoints), " (", why.message(),
                         "); is a firewall between the hosts?"));
}

Result<Bootstrap> bootstrap_by_caller(const CallerPlace& place, const WorkerSettings& settings) {
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    return invalid_argument(cat("rank ", place.rank, " of ", place.size, " is impossible"));
  }
  Bootstrap result;
  result.identity.rank = place.rank;
  result.identity.size = place.size;
  result.rank_serves_store = true;
  if (place.size == 1) return result;
  if (settings.encrypts) {
    return failed_precondition(
        "HOROVOD_ENCRYPT is set, but the secret of the keys would cross the network in clear; "
        "start "
        "the job by horovodrun, or unset HOROVOD_ENCRYPT");
  }
  std::string text;
  if (place.rank == 0) {
    const Secret secret = Secret::random();
    auto server = ServedStore::start(secret, settings);
    if (!server.ok()) {
      text = kNoStore;  // the other ranks wait for a text
      place.share(&text);
      return server.status();
    }
    text = invitation(secret, (*server)->endpoints());
    result.session = std::shared_ptr<ServedStore>(*std::move(server));
  }
  if (!place.share(&text)) {
    return unavailable(cat("rank ", place.rank, " of ", place.size,
                           place.rank == 0 ? " could not send the others the address of its store"
                                           : " did not get the address of rank 0's store"));
  }
  if (text == kNoStore) return unavailable("rank 0 could not start its store, and says why");
  HVD_ASSIGN_OR_RETURN(const Invitation master, parse_invitation(text));
  HVD_ASSIGN_OR_RETURN(result.store, reach_store(master, place.rank, 0,
                                                 Deadline::after_seconds(settings.start_seconds)));
  result.secret = master.secret;
  return result;
}

}  // namespace hvd::runtime
