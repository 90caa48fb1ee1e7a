#include "launcher/agent/link/world_reports.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "base/secrets/secret.h"
#include "launcher/agent/link/accepting.h"
#include "net/packet_socket.h"

namespace hvd::launcher {

namespace {

constexpr std::string_view kReporter = "a rank";

}  // namespace

Status WorldReports::listen() {
  const std::string prefix = rendezvous::world_report_prefix(::getpid());
  HVD_ASSIGN_OR_RETURN(listener_, net::listen_for_packets(prefix + random_hex(16)));
  const auto accept = [this](uint32_t) {
    accept_all(loop_, listener_, [this](UniqueFd socket) {
      const int caller = socket.get();
      callers_.emplace(caller, std::move(socket));
      loop_.watch(caller, EPOLLIN, [this, caller](uint32_t) { receive(caller); });
    });
  };
  if (!loop_.watch(listener_.get(), EPOLLIN, accept)) {
    return system_error("cannot watch the socket for the ranks' worlds", errno);
  }
  return {};
}

void WorldReports::receive(int caller) {
  const auto packet = net::receive_packet(caller, kReporter);
  if (packet.ok() && !*packet) return;
  if (packet.ok()) {
    const auto report = rendezvous::decode_world_report((*packet)->bytes);
    const auto peer = net::peer_credentials(caller);
    if (report.ok()) on_report_(peer ? peer->pid : -1, *report);
  }
  const std::byte acknowledgement{1};
  (void)net::send_packet(caller, {&acknowledgement, 1}, {}, kReporter);
  loop_.unwatch(caller);
  callers_.erase(caller);
  if (listener_) loop_.change(listener_.get(), EPOLLIN);
}

void WorldReports::close() {
  for (const auto& [caller, socket] : callers_) loop_.unwatch(caller);
  callers_.clear();
  if (listener_) loop_.unwatch(listener_.get());
  listener_.reset();
}

}  // namespace hvd::launcher
