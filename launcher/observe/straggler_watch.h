// Looks for ranks of a running job that are late: asks the agents for the last training steps of their ranks, once for
// each window of steps, and for what disturbs them while a rank is suspected. Asks seldom while no step ends. JobLaunch
// owns it. Lives on the launch's loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_table.h"
#include "launcher/hosts/rank_waits.h"
#include "launcher/observe/rules/late_places.h"
#include "launcher/observe/rules/step_alignment.h"
#include "launcher/observe/rules/straggler_cause.h"
#include "launcher/observe/rules/straggler_rule.h"
#include "launcher/observe/rules/wait_tally.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

enum class StragglerReaction : uint8_t { kWarn, kRestart, kOff };
// "warn", "restart" or "off".
std::optional<StragglerReaction> parse_straggler_reaction(std::string_view word);

class StragglerWatch {
 public:
  // Asks the agents: by host, as Inspected::text; empty where none came.
  using Ask = std::function<net::Task<std::vector<std::string>>(InspectDetail)>;
  // Where a rank of the table is while others wait for it, in bytes of host_signs.h.
  using AskPlace = std::function<net::Task<std::string>(int number, uint32_t late_microseconds)>;
  // Called with each finding, whether the host causes it, and its sentence.
  using Report = std::function<void(const StragglerFinding&, bool is_of_host, const std::string&)>;
  // The present rank of a rank of the table, or -1.
  using RankOf = std::function<int(int number)>;

  // `hosts` outlives this object.
  StragglerWatch(net::asio::any_io_executor executor, const HostTable& hosts, RankOf rank_of,
                 Ask ask, AskPlace ask_place, Report report);

  // A rank has called hvd.init(). The coroutine shares the object: its loop may outlive the launch.
  static net::Task<void> run(std::shared_ptr<StragglerWatch> self);
  void stop();
  // Called when longest_wait() has changed by a new window.
  void on_window(std::function<void()> callback) { on_window_ = std::move(callback); }

  // The straggler that is late most, or null.
  const StragglerRule::Lateness* slowest() const { return rule_.slowest(); }
  // The longest wait of any rank in a step, in microseconds, in the median of the last window; 0: unknown.
  uint32_t longest_wait() const;
  std::vector<RankWaits> waits() const;
  // The line for the end of the job, or empty.
  std::string summary() const { return tally_.summary(host_names()); }

 private:
  template <typename Each>
  std::map<int, Each> by_rank(const std::vector<std::string>& texts,
                              Result<std::vector<Each>> (*decode)(std::string_view),
                              std::map<int, int>* host_of = nullptr) const;
  std::vector<std::string> host_names() const;
  int members() const;
  net::Task<void> pause(double seconds);
  std::vector<StepWindow> take(const std::vector<std::string>& answers);
  net::Task<void> look();
  net::Task<void> look_at_causes();
  net::Task<void> look_at_place();
  // The number in the table of a present rank, or -1.
  int number_of(int rank) const;
  void forget_ranks();
  net::Task<void> report(StragglerFinding finding, std::vector<std::string> host_of);
  double seconds_to_window() const;

  const HostTable& hosts_;
  const RankOf rank_of_;
  const Ask ask_;
  const AskPlace ask_place_;
  const Report report_;
  std::function<void()> on_window_;
  StepAlignment alignment_;
  StragglerRule rule_;
  WaitTally tally_;
  PressureRecord pressures_;
  LatePlaces places_;
  std::vector<std::string> known_names_;  // hosts by rank, at the last look
  double step_seconds_ = 0;               // of a step with its waits
  double idle_ = 0;                       // seconds of the last pause without a step
  int looks_before_ = 0;                  // the first step
  bool is_over_ = false;
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
