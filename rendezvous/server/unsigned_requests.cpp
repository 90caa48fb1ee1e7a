#include "rendezvous/server/unsigned_requests.h"

#include "base/log/log.h"
#include "base/text.h"
#include "net/peer_user.h"
#include "net/socket_address.h"

namespace hvd::rendezvous {

// /health needs no token: it is not secret that the server runs.
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

std::optional<Reply> admit_agent(ServerCore& core, const net::HttpRequestParser& request,
                                 int socket, bool is_encrypted) {
  if (to_lower(request.field("Upgrade")) != "horovod-agent") {
    return Reply{400, "/v1/agent is only for agents: send 'Upgrade: horovod-agent'", nullptr};
  }
  if (core.agents_use_tls && !is_encrypted) {
    if (core.logged_refusals.insert(426).second) {
      const std::string peer = net::peer_text(socket);
      log::warning(cat("the agent", peer.empty() ? "" : cat(" at ", peer),
                       " joins in plain text and is refused; start horovod-agent of this version "
                       "there, without --insecure-plaintext; later refusals of this kind are not "
                       "reported"));
    }
    return Reply{426,
                 "hosts join this launcher by TLS: start horovod-agent of its version, without "
                 "--insecure-plaintext",
                 nullptr};
  }
  if (core.on_agent && !core.is_closing) return {};
  return Reply{409, "the job has all its hosts, or no launcher accepts hosts at this port",
               nullptr};
}

namespace {

// Makes a refusal. Only people read its sentence: Horovod's own workers read only the status.
Reply refuse(ServerCore& core, int status, const std::string& why) {
  if (core.logged_refusals.insert(status).second) {
    log::warning(cat("a request of Horovod's own workers (--insecure-compat) is refused: ", why,
                     "; later refusals of this kind are not reported"));
  }
  return {status, why + "\n", nullptr};
}

Reply refuse_body(ServerCore& core, size_t bytes) {
  return refuse(
      core, 413,
      cat("a value may have ", core.unsigned_store->limits().value_bytes, " bytes, not ", bytes));
}

Reply refuse_total(ServerCore& core) {
  return refuse(
      core, 507,
      cat("the values of all workers may take ", core.unsigned_store->limits().total_bytes,
          " bytes, and this value exceeds that; give -np N for a job of more workers"));
}

}  // namespace

std::optional<Reply> admit_unsigned(ServerCore& core, const net::HttpRequestParser& request,
                                    int socket, UnsignedStore::Room& room) {
  if (!UnsignedStore::knows(request.method())) return Reply{501, {}, nullptr};
  if (const net::PeerUser peer = net::peer_user(socket); !peer.is_own_or_elsewhere()) {
    return refuse(core, 403, peer.refusal());
  }
  const std::string_view length = request.field("Content-Length");
  if (request.method() == "PUT" && length.empty()) return Reply{411, {}, nullptr};
  // Reserve memory for a body also if the request is a GET, whose body has no meaning.
  const auto bytes = static_cast<size_t>(parse_int(length).value_or(0));
  if (bytes > core.unsigned_store->limits().value_bytes) return refuse_body(core, bytes);
  room = core.unsigned_store->take_room(bytes);
  if (!room) return refuse_total(core);
  return {};
}

// Answers an admitted request. Only refusals have a text.
Reply answer_unsigned(ServerCore& core, net::HttpRequestParser& request) {
  UnsignedStore::Answer answer =
      core.unsigned_store->answer(request.method(), request.target(), request.take_body());
  if (answer.status == 507) return refuse_total(core);
  return {answer.status, {}, std::move(answer.value)};
}

}  // namespace hvd::rendezvous
