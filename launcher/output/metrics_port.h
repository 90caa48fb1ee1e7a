// The port at which a job's metrics are served (--metrics-port). Listens from before the first launch to the end of the
// job, so that it stays the same over all launches; a MetricsServer answers while one runs. `record_job` owns it.
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

// Refuses an address that is none, and one that other machines reach where nothing protects it.
Status check_metrics_port(const LaunchSettings& settings);

class MetricsPort {
 public:
  // Null without the flag, and where nothing can listen there: a sentence says so, and the job runs without it.
  static std::unique_ptr<MetricsPort> open(const LaunchSettings& settings);

  // Where Prometheus on this machine finds it, such as "127.0.0.1:9400".
  const std::string& target() const { return target_; }
  const UniqueFd& listener() const { return listener_; }
  // Whether only clients by TLS and with a token are answered.
  bool is_protected() const { return tls_.has_value(); }
  const std::optional<net::TlsFront>& tls() const { return tls_; }
  // Whether a request with this Host field may be answered. A port of this machine alone is asked for by an address or
  // localhost: a page in a browser here can ask by a name of its own (DNS rebinding).
  bool answers_to(std::string_view host) const;
  // Empty until it is known: nobody is answered before, where the port is protected.
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
