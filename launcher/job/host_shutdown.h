// Ends hosts: orders their agents to end the ranks, abandons hosts that do not confirm in time, and closes the links
// when the job is over. Owns the timer of these limits. JobLaunch owns this object. Lives on the launch's loop.
#pragma once

#include <functional>

#include "launcher/hosts/host_table.h"
#include "launcher/output/output.h"
#include "net/asio.h"

namespace hvd::launcher {

class HostShutdown {
 public:
  // The arguments must outlive this object. `grace`: seconds, --kill-grace. `on_late`: called after the link of a host
  // was closed, because the host did not confirm its end in time.
  HostShutdown(net::asio::io_context& loop, HostTable& hosts, JobOutput& output, double grace,
               std::function<void(HostRun&)> on_late);

  void end(HostRun& host);
  // Ends all hosts. A second call may shorten the grace period. `signal`: as in End.
  void end_all(double grace, int signal);
  // Call when all hosts are over.
  void cancel() { timer_.cancel(); }
  // Call after cancel(). Returns when the agents have closed their links, or after 5 s.
  net::Task<void> close_links();

 private:
  void order_end(HostRun& host, double grace, int signal);
  void give_up_in_time();
  net::Task<void> give_up_late_hosts();
  void drop_links();

  net::asio::io_context& loop_;
  HostTable& hosts_;
  JobOutput& output_;
  const double grace_;
  const std::function<void(HostRun&)> on_late_;
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
