#include "launcher/output/metrics_port.h"

#include <unistd.h>

#include "base/text.h"
#include "launcher/output/report.h"
#include "net/resolve.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

// Parses "9400", "HOST:9400" or "[IPv6]:9400".
Result<net::Endpoint> parse_address(const std::string& text) {
  const bool is_port = text.find(':') == std::string::npos;
  auto endpoint = net::parse_endpoint(cat("tcp:", is_port ? cat(kLoopback, ":") : "", text));
  if (!endpoint.ok()) {
    return invalid_argument(cat("--metrics-port ", printable(text),
                                " is no port and no address such as 9400, 0.0.0.0:9400 or "
                                "[::]:9400"));
  }
  if (endpoint->host == "localhost") endpoint->host = kLoopback;
  return endpoint;
}

bool is_loopback(const net::Endpoint& endpoint) {
  const auto address = net::numeric_address(endpoint);
  return address && (endpoint.host == "::1" || net::host_text(*address).starts_with("127."));
}

bool needs_protection(const LaunchSettings& settings, const net::Endpoint& endpoint) {
  return !settings.output.metrics_insecure && !is_loopback(endpoint);
}

std::string target_of(const net::Endpoint& bound) {
  net::Endpoint target = bound;
  const bool is_everywhere = bound.host.empty() || bound.host == "0.0.0.0" || bound.host == "::";
  if (is_everywhere) {
    char name[256] = "";
    target.host = ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
  }
  return net::to_string(target).substr(std::string_view("tcp:").size());
}

}  // namespace

Status check_metrics_port(const LaunchSettings& settings) {
  if (!settings.output.metrics_port.has_value()) {
    if (!settings.output.metrics_insecure) return {};
    return invalid_argument("--metrics-insecure is for --metrics-port HOST:PORT");
  }
  HVD_ASSIGN_OR_RETURN(const net::Endpoint endpoint, parse_address(*settings.output.metrics_port));
  if (!needs_protection(settings, endpoint) || settings.join.tls_cert.has_value()) return {};
  return invalid_argument(
      cat("other machines can reach --metrics-port ", printable(*settings.output.metrics_port),
          ": give the port alone, which is for this machine, or --listen with --tls-cert and "
          "--tls-key, by which clients need TLS and the monitor token, or --metrics-insecure"));
}

Result<std::unique_ptr<MetricsPort>> MetricsPort::try_open(const LaunchSettings& settings) {
  HVD_ASSIGN_OR_RETURN(const net::Endpoint endpoint, parse_address(*settings.output.metrics_port));
  std::optional<net::TlsFront> tls;
  if (needs_protection(settings, endpoint)) {
    HVD_ASSIGN_OR_RETURN(tls,
                         net::TlsFront::make({.certificate = settings.join.tls_cert.value_or(""),
                                              .key = settings.join.tls_key.value_or("")}));
  }
  HVD_ASSIGN_OR_RETURN(const auto addresses, net::resolve_to_listen(endpoint));
  HVD_ASSIGN_OR_RETURN(UniqueFd listener, net::listen_on(addresses.front()));
  HVD_ASSIGN_OR_RETURN(const net::SocketAddress bound, net::local_address(listener.get()));
  return std::unique_ptr<MetricsPort>(
      new MetricsPort(std::move(listener), net::to_endpoint(bound), std::move(tls)));
}

MetricsPort::MetricsPort(UniqueFd listener, const net::Endpoint& bound,
                         std::optional<net::TlsFront> tls)
    : listener_(std::move(listener)),
      target_(target_of(bound)),
      is_of_this_machine_(is_loopback(bound)),
      tls_(std::move(tls)) {}

bool MetricsPort::answers_to(std::string_view host) const {
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && !host.ends_with(']')) host = host.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return !is_of_this_machine_ || host.empty() || to_lower(host) == "localhost" ||
         is_loopback({net::Endpoint::Family::kTcp, {}, std::string(host), 0});
}

std::unique_ptr<MetricsPort> MetricsPort::open(const LaunchSettings& settings) {
  if (!settings.output.metrics_port.has_value()) return nullptr;
  auto port = try_open(settings);
  if (port.ok()) return *std::move(port);
  print_message(cat("metrics are not served at --metrics-port ",
                    printable(*settings.output.metrics_port), ": ", port.status().message(),
                    "; the job goes on without it"));
  return nullptr;
}

}  // namespace hvd::launcher
