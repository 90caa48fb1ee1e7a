#include "rendezvous/server/unsigned_requests.h"

#include "base/text.h"

namespace hvd::rendezvous {

// /health needs no token: that the server runs is no secret.
std::optional<Reply> admit_monitor(const ServerCore& core, const net::HttpRequestParser& request) {
  if (request.method() != "GET") return Reply{405, "this path supports only GET", nullptr};
  if (request.target() == "/health" || core.is_monitor_open) return {};
  const std::string wanted = "Bearer " + core.monitor_token;
  const std::string_view given = request.field("Authorization");
  if (equal_in_constant_time(as_bytes(wanted), as_bytes(given))) return {};
  return Reply{401,
               "give 'Authorization: Bearer <token>' with the token that horovod-rendezvous "
               "--show-monitor-token prints, or sign the request",
               nullptr};
}

Reply answer_monitor(const ServerCore& core, std::string_view target) {
  if (target == "/health") return {200, core.is_closing ? "closing\n" : "ok\n", nullptr};
  if (target == "/metrics") {
    return {200, core.monitor.metrics(core.service, core.sessions.size(), core.waiting().size()),
            nullptr};
  }
  return {200, core.monitor.status(core.service, core.sessions.size(), core.waiting()), nullptr};
}

std::optional<Reply> admit_agent(const ServerCore& core, const net::HttpRequestParser& request) {
  if (to_lower(request.field("Upgrade")) != "horovod-agent") {
    return Reply{400, "/v1/agent is for agents alone: send 'Upgrade: horovod-agent'", nullptr};
  }
  if (core.on_agent && !core.is_closing) return {};
  return Reply{409, "the job has all its hosts, or no launcher accepts hosts at this port",
               nullptr};
}

// The replies have no text, since clients of the original's server read only the status.
std::optional<Reply> admit_unsigned(const net::HttpRequestParser& request) {
  if (!UnsignedStore::knows(request.method())) return Reply{501, {}, nullptr};
  if (request.method() == "PUT" && request.field("Content-Length").empty()) {
    return Reply{411, {}, nullptr};
  }
  return {};
}

Reply answer_unsigned(UnsignedStore& store, net::HttpRequestParser& request) {
  UnsignedStore::Answer answer =
      store.answer(request.method(), request.target(), request.take_body());
  return {answer.status, {}, std::move(answer.value)};
}

}  // namespace hvd::rendezvous
