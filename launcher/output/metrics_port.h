// The port for a job's metrics (--metrics-port). It is open from before the first launch to the end of the job, and
// therefore the same for all launches. A MetricsServer answers while a launch runs. record_job() owns this object.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/plan/launch_settings.h"
#include "net/endpoint.h"
#include "net/tls/tls_front.h"

namespace hvd::launcher {

// Refuses an invalid address, and an unprotected address that other machines can reach.
Status check_metrics_port(const LaunchSettings& settings);

class MetricsPort {
 public:
  // Opens the port. Returns null without the flag and, after a message, if the port cannot be opened: the job
  // runs without the port.
  static std::unique_ptr<MetricsPort> open(const LaunchSettings& settings);

  // Returns the address for Prometheus on this machine, for example "127.0.0.1:9400".
  const std::string& target() const { return target_; }
  const UniqueFd& listener() const { return listener_; }
  // Returns whether clients need TLS and a token.
  bool is_protected() const { return tls_.has_value(); }
  const std::optional<net::TlsFront>& tls() const { return tls_; }
  // Returns whether to answer a request with this Host field. A port for this machine answers only to an address or to
  // localhost: otherwise a web page could reach it by its own host name (DNS rebinding).
  bool answers_to(std::string_view host) const;
  // Returns the token; empty until the token is known. Before that, a protected port answers no request.
  const std::string& token() const { return token_; }
  void set_token(std::string token) { token_ = std::move(token); }

 private:
  MetricsPort(UniqueFd listener, const net::Endpoint& bound, std::optional<net::TlsFront> tls);
  static Result<std::unique_ptr<MetricsPort>> try_open(const LaunchSettings& settings);

  const UniqueFd listener_;
  const std::string target_;
  const bool is_of_this_machine_;
  const std::optional<net::TlsFront> tls_;
  std::string token_;
};

}  // namespace hvd::launcher
