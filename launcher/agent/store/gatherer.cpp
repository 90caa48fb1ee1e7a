#include "launcher/agent/store/gatherer.h"

#include <sys/epoll.h>

#include <cerrno>
#include <vector>

#include "launcher/agent/loop/accepting.h"
#include "rendezvous/client/gathering.h"

namespace hvd::launcher {

namespace gathering = rendezvous::gathering;

namespace {
constexpr std::string_view kRank = "a rank";
}

Status Gatherer::listen(const std::string& name, const HostJob& job) {
  HVD_ASSIGN_OR_RETURN(listener_, net::listen_for_packets(name));
  host_ = job.host;
  hosts_ = job.hosts;
  ranks_ = job.ranks.size();
  if (!loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept(); })) {
    return system_error("cannot watch the socket for the ranks' records", errno);
  }
  return {};
}

void Gatherer::accept() {
  accept_all(loop_, listener_, [this](UniqueFd socket) {
    const int caller = socket.get();
    callers_.emplace(caller, Caller{std::move(socket), {}});
    loop_.watch(caller, EPOLLIN, [this, caller](uint32_t) { hear(caller); });
  });
}

void Gatherer::hear(int caller) {
  const auto packet = net::receive_packet(callers_.at(caller).socket.get(), kRank);
  if (packet.ok() && !*packet) return;
  // A rank that says what it should not is treated as one that has ended: it notices.
  if (!packet.ok() || (*packet)->bytes.empty() || !obey(caller, **packet).ok()) drop(caller);
}

Status Gatherer::obey(int caller, const net::Packet& packet) {
  if (packet.fds.size() != 1) return invalid_argument("a rank sent no record");
  HVD_ASSIGN_OR_RETURN(const gathering::Message message, gathering::decode(packet.bytes));
  if (const auto* offer = std::get_if<gathering::Offer>(&message)) {
    HVD_ASSIGN_OR_RETURN(Bytes record, gathering::from_file(packet.fds[0].get()));
    callers_.at(caller).exchange = offer->exchange;
    exchanges_[offer->exchange].records.insert_or_assign(offer->index, std::move(record));
    send_out(offer->exchange);
    return {};
  }
  if (!std::holds_alternative<gathering::Delivery>(message)) {
    return invalid_argument("a rank sent what only an agent sends");
  }
  const auto exchange = exchanges_.find(callers_.at(caller).exchange);
  if (exchange == exchanges_.end() || exchange->second.errand != caller) {
    return invalid_argument("a rank delivers what it was not sent for");
  }
  deliver(caller, packet.fds[0].get());
  return {};
}

void Gatherer::deliver(int from, int file) {
  const std::string name = callers_.at(from).exchange;
  exchanges_.erase(name);
  std::vector<int> served;
  for (const auto& [caller, one] : callers_) {
    if (one.exchange != name) continue;
    served.push_back(caller);
    // Nothing was sent to it before, so there is room; one that has ended misses nothing.
    const Bytes message = gathering::encode(gathering::Delivery{});
    if (caller != from) (void)net::send_packet(one.socket.get(), message, {file}, kRank);
  }
  for (const int caller : served) drop(caller);
}

void Gatherer::send_out(const std::string& name) {
  const auto found = exchanges_.find(name);
  if (found == exchanges_.end() || found->second.errand || found->second.records.size() < ranks_) {
    return;
  }
  const auto file = gathering::to_file(gathering::pack(found->second.records));
  const Bytes message = gathering::encode(
      gathering::Errand{static_cast<int32_t>(host_), static_cast<int32_t>(hosts_)});
  for (const auto& [caller, one] : callers_) {
    if (!file.ok() || one.exchange != name) continue;
    const auto sent = net::send_packet(one.socket.get(), message, {file->get()}, kRank);
    if (!sent.ok() || !*sent) continue;
    found->second.errand = caller;
    return;
  }
}

void Gatherer::drop(int caller) {
  const auto found = callers_.find(caller);
  const std::string name = found->second.exchange;
  loop_.forget(caller);
  callers_.erase(found);
  loop_.change(listener_.get(), EPOLLIN);
  const auto exchange = exchanges_.find(name);
  if (exchange == exchanges_.end() || exchange->second.errand != caller) return;
  exchange->second.errand.reset();
  send_out(name);
}

void Gatherer::close() {
  exchanges_.clear();
  while (!callers_.empty()) drop(callers_.begin()->first);
  if (listener_) loop_.forget(listener_.get());
  listener_.reset();
}

}  // namespace hvd::launcher
