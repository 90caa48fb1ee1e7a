// What a session answers without a signature: monitoring, agents that call their launcher, and the
// original's workers where they are let in.
#include "base/text.h"
#include "rendezvous/server/session.h"

namespace hvd::rendezvous {

namespace asio = net::asio;

// What monitoring asks without a signature: whether the server lives is no secret.
std::optional<Reply> Session::admit_monitor() const {
  if (parser_->method() != "GET") return Reply{405, "only GET is done here", nullptr};
  if (parser_->target() == "/health" || core_->is_monitor_open) return {};
  const std::string wanted = "Bearer " + core_->monitor_token;
  const std::string_view given = parser_->field("Authorization");
  if (equal_in_constant_time(as_bytes(wanted), as_bytes(given))) return {};
  return Reply{401,
               "give 'Authorization: Bearer <token>' with the token that horovod-rendezvous "
               "--show-monitor-token prints, or sign the request",
               nullptr};
}

Reply Session::answer_monitor() {
  const std::string_view target = parser_->target();
  if (target == "/health") return {200, core_->is_closing ? "closing\n" : "ok\n", nullptr};
  if (target == "/metrics") {
    return {200,
            core_->monitor.metrics(core_->service, core_->sessions.size(), core_->waiting().size()),
            nullptr};
  }
  return {200, core_->monitor.status(core_->service, core_->sessions.size(), core_->waiting()),
          nullptr};
}

std::optional<Reply> Session::admit_agent() const {
  if (to_lower(parser_->field("Upgrade")) != "horovod-agent") {
    return Reply{400, "this is for agents, who send 'Upgrade: horovod-agent'", nullptr};
  }
  if (core_->on_agent && !core_->is_closing) return {};
  return Reply{409,
               "no host is wanted here: the job has those that it needs, or no launcher listens",
               nullptr};
}

// An agent and the launcher prove to each other who they are, in their own way.
net::Task<void> Session::hand_over() {
  const std::string head =
      net::response_head(101, {{"Connection", "Upgrade"}, {"Upgrade", "horovod-agent"}}, 0);
  const auto [error, size] =
      co_await asio::async_write(socket_, asio::buffer(head), net::use_tuple);
  disarm();
  if (!error && core_->on_agent) core_->on_agent(std::move(socket_));
}

// Clients of the original's server look at the status alone.
std::optional<Reply> Session::admit_unsigned() {
  if (!UnsignedStore::knows(parser_->method())) return Reply{501, {}, nullptr};
  if (parser_->method() == "PUT" && parser_->field("Content-Length").empty()) {
    return Reply{411, {}, nullptr};
  }
  return {};
}

Reply Session::answer_unsigned() {
  UnsignedStore::Answer answer =
      core_->unsigned_store->answer(parser_->method(), parser_->target(), parser_->take_body());
  return {answer.status, {}, std::move(answer.value)};
}

}  // namespace hvd::rendezvous
