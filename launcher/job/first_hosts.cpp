#include "launcher/job/first_hosts.h"

#include <csignal>
#include <numeric>

#include "base/text.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/elastic/script_discovery.h"
#include "launcher/output/report.h"
#include "launcher/plan/host_choice.h"
#include "net/asio.h"
#include "rendezvous/server/thrown.h"

namespace hvd::launcher {
namespace {

// The wait is not worth a sentence before, and gets another one after the second time.
constexpr std::chrono::seconds kUntilSaid{3};
constexpr std::chrono::seconds kSaidAgain{60};

int slots_of(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + host.slots; });
}

class Wait {
 public:
  explicit Wait(const Settings& settings)
      : settings_(settings),
        wanted_(rank_limits(settings).start),
        discovery_(loop_.get_executor(),
                   {.command = settings.text("host_discovery_script"),
                    .slots_alone = static_cast<int>(settings.integer("slots_per_host"))},
                   {.warn = [](std::string_view sentence) { say(std::string(sentence)); },
                    .show = [](std::string_view line) { say(std::string(line)); }}),
        changed_(loop_),
        signals_(loop_, SIGINT, SIGTERM, SIGHUP) {}

  Result<FirstHosts> run() {
    signals_.async_wait([this](const net::error_code& error, int number) {
      if (error) return;
      found_.signal = number;
      changed_.cancel();
    });
    Status status;
    net::asio::co_spawn(loop_, wait(), [&](std::exception_ptr error, Status waited) {
      status = error ? rendezvous::status_of(error, "waiting for hosts failed") : waited;
      loop_.stop();
    });
    loop_.run();
    if (!status.ok()) return status;
    return std::move(found_);
  }

 private:
  net::Task<Status> wait() {
    auto first = co_await discovery_.first();
    if (!first.ok() && found_.signal == 0) co_return first.status();
    if (first.ok()) found_.hosts = *std::move(first);
    discovery_.watch([this](const std::vector<Host>& hosts) {
      found_.hosts = hosts;
      changed_.cancel();
    });
    const auto start = Clock::now();
    const double seconds = elastic_timeout(settings_);
    const auto limit =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    auto next_words = start + kUntilSaid;
    Status status;
    while (found_.signal == 0 && slots_of(found_.hosts) < wanted_) {
      const auto now = Clock::now();
      if (now >= limit) {
        status = deadline_exceeded(cat("the discovery script named ", slots_of(found_.hosts),
                                       " of ", wanted_, " slots within ", seconds,
                                       " s (--elastic-timeout); nothing was started"));
        break;
      }
      if (now >= next_words) {
        say(cat("waits for ", wanted_, " slots; the discovery script names ",
                slots_of(found_.hosts), " so far"));
        next_words = now + kSaidAgain;
      }
      changed_.expires_at(std::min(limit, next_words));
      co_await changed_.async_wait(net::use_tuple);
    }
    co_await discovery_.stop();
    co_return status;
  }

  const Settings& settings_;
  const int wanted_;
  net::asio::io_context loop_{1};
  ScriptDiscovery discovery_;
  net::asio::steady_timer changed_;
  net::asio::signal_set signals_;
  FirstHosts found_;
};

}  // namespace

Result<FirstHosts> wait_for_first_hosts(const Options& options) {
  if (options.settings.is_set("host_discovery_script")) return Wait(options.settings).run();
  HVD_ASSIGN_OR_RETURN(auto hosts, choose_hosts(options.settings));
  return FirstHosts{.hosts = std::move(hosts), .signal = 0};
}

}  // namespace hvd::launcher
