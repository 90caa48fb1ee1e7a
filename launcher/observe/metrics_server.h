// Answers GET and HEAD of /metrics and /healthz on the port of --metrics-port, one request per connection. Limits the
// number of connections and the time of each. Reads the metrics at most once a second, for any number of clients.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "launcher/observe/job_part.h"
#include "launcher/output/metrics_port.h"
#include "net/asio.h"
#include "net/http.h"
#include "net/notification.h"
#include "net/tls/tls_front.h"

namespace hvd::launcher {

struct MetricsServerLimits {
  // With more connections, the oldest one is closed.
  size_t connections = 64;
  std::chrono::milliseconds connection{10'000};
};

class MetricsServer : public JobPart {
 public:
  // `launch` must outlive this object.
  explicit MetricsServer(PartLaunch& launch);
  using Text = std::function<net::Task<std::string>()>;
  // `port`: null if metrics are not served; must outlive this object. `text`: returns the metrics in Prometheus's
  // format.
  MetricsServer(net::asio::any_io_executor executor, const MetricsPort* port, Text text,
                MetricsServerLimits limits = {});

  void on(const JobEvent& event) override;
  // `text` is not called after the end.
  net::Task<void> end() override;

 private:
  struct Connection;
  struct Reply {
    int status = 200;
    std::string text;
    std::string_view type = "text/plain; charset=utf-8";
    bool has_body = true;
  };

  void open();
  std::shared_ptr<MetricsServer> self() {
    return std::static_pointer_cast<MetricsServer>(shared_from_this());
  }
  static net::Task<void> accept(std::shared_ptr<MetricsServer> self);
  static net::Task<void> serve(std::shared_ptr<MetricsServer> self,
                               std::shared_ptr<Connection> connection);
  void take(net::AcceptedSocket socket);
  net::Task<std::optional<Reply>> answer(Connection& connection);
  net::Task<Reply> reply_to(const net::HttpRequestParser& request);
  net::Task<std::string> recent_text();

  using Acceptor = net::asio::basic_socket_acceptor<net::asio::generic::stream_protocol>;
  const net::asio::any_io_executor executor_;
  const MetricsPort* const port_;
  const Text text_;
  const MetricsServerLimits limits_;
  Acceptor acceptor_;
  net::asio::steady_timer pause_;
  net::Notification changed_;
  std::deque<std::weak_ptr<Connection>> connections_;  // in order of acceptance
  std::string recent_;
  Clock::time_point valid_until_ = Clock::time_point::min();
  size_t running_ = 0;  // number of serving coroutines
  bool is_asking_ = false;
};

}  // namespace hvd::launcher
