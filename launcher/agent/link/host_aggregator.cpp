#include "launcher/agent/link/host_aggregator.h"

#include <sys/epoll.h>

#include <cerrno>
#include <vector>

#include "launcher/agent/link/accepting.h"
#include "rendezvous/client/host_aggregation.h"

namespace hvd::launcher {

namespace host_aggregation = rendezvous::host_aggregation;

namespace {
constexpr std::string_view kRank = "a rank";
}

Status HostAggregator::listen(const std::string& name, const HostJob& job) {
  HVD_ASSIGN_OR_RETURN(listener_, net::listen_for_packets(name));
  host_ = job.host;
  hosts_ = job.hosts;
  ranks_ = job.ranks.size();
  if (!loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept(); })) {
    return system_error("cannot watch the socket for the ranks' records", errno);
  }
  return {};
}

void HostAggregator::accept() {
  accept_all(loop_, listener_, [this](UniqueFd socket) {
    const int caller = socket.get();
    callers_.emplace(caller, Caller{std::move(socket), {}});
    loop_.watch(caller, EPOLLIN, [this, caller](uint32_t) { receive(caller); });
  });
}

void HostAggregator::receive(int caller) {
  const auto packet = net::receive_packet(callers_.at(caller).socket.get(), kRank);
  if (packet.ok() && !*packet) return;
  // A rank that violates the protocol is treated like a rank that has ended.
  if (!packet.ok() || (*packet)->bytes.empty() || !handle(caller, **packet).ok()) drop(caller);
}

Status HostAggregator::handle(int caller, const net::Packet& packet) {
  if (packet.fds.size() != 1) return invalid_argument("a rank sent no record");
  HVD_ASSIGN_OR_RETURN(const host_aggregation::Message message,
                       host_aggregation::decode(packet.bytes));
  if (const auto* record_message = std::get_if<host_aggregation::RankRecord>(&message)) {
    HVD_ASSIGN_OR_RETURN(Bytes record, host_aggregation::from_file(packet.fds[0].get()));
    callers_.at(caller).exchange = record_message->exchange;
    exchanges_[record_message->exchange].records.insert_or_assign(record_message->index,
                                                                  std::move(record));
    choose_forwarder(record_message->exchange);
    return {};
  }
  if (!std::holds_alternative<host_aggregation::AggregationResult>(message)) {
    return invalid_argument("a rank sent what only an agent sends");
  }
  const auto exchange = exchanges_.find(callers_.at(caller).exchange);
  if (exchange == exchanges_.end() || exchange->second.forwarder != caller) {
    return invalid_argument("a rank sent a result that it was not asked for");
  }
  distribute(caller, packet.fds[0].get());
  return {};
}

void HostAggregator::distribute(int from, int file) {
  const std::string name = callers_.at(from).exchange;
  exchanges_.erase(name);
  std::vector<int> served;
  for (const auto& [caller, one] : callers_) {
    if (one.exchange != name) continue;
    served.push_back(caller);
    // The socket has space, because this message is the first to the rank. A rank that has ended needs no
    // message.
    const Bytes message = host_aggregation::encode(host_aggregation::AggregationResult{});
    if (caller != from) (void)net::send_packet(one.socket.get(), message, {file}, kRank);
  }
  for (const int caller : served) drop(caller);
}

void HostAggregator::choose_forwarder(const std::string& name) {
  const auto found = exchanges_.find(name);
  if (found == exchanges_.end() || found->second.forwarder ||
      found->second.records.size() < ranks_) {
    return;
  }
  const auto file = host_aggregation::to_file(host_aggregation::pack(found->second.records));
  const Bytes message = host_aggregation::encode(
      host_aggregation::ForwardRequest{static_cast<int32_t>(host_), static_cast<int32_t>(hosts_)});
  for (const auto& [caller, one] : callers_) {
    if (!file.ok() || one.exchange != name) continue;
    const auto sent = net::send_packet(one.socket.get(), message, {file->get()}, kRank);
    if (!sent.ok() || !*sent) continue;
    found->second.forwarder = caller;
    return;
  }
}

void HostAggregator::drop(int caller) {
  const auto found = callers_.find(caller);
  const std::string name = found->second.exchange;
  loop_.unwatch(caller);
  callers_.erase(found);
  loop_.change(listener_.get(), EPOLLIN);
  const auto exchange = exchanges_.find(name);
  if (exchange == exchanges_.end() || exchange->second.forwarder != caller) return;
  exchange->second.forwarder.reset();
  choose_forwarder(name);
}

void HostAggregator::close() {
  exchanges_.clear();
  while (!callers_.empty()) drop(callers_.begin()->first);
  if (listener_) loop_.unwatch(listener_.get());
  listener_.reset();
}

}  // namespace hvd::launcher
