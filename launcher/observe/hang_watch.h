// Looks whether the ranks of a job hang: asks the agents for signs that cost little, and for the places of the ranks
// when nothing moves. For ranks that never call hvd.init(): the others report a stall themselves. JobLaunch owns it.
// Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"
#include "launcher/observe/rules/hang_rule.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

enum class HangReaction : uint8_t { kWarn, kDump, kStop };
// "warn", "dump" or "stop".
std::optional<HangReaction> parse_hang_reaction(std::string_view word);

class HangWatch {
 public:
  // Asks the agents: by host, as Inspected::text; empty where none came.
  using Ask = std::function<net::Task<std::vector<std::string>>(InspectDetail)>;
  // Called with each finding, and its sentence.
  using Report = std::function<void(HangRule::Finding::Kind, const std::string&)>;
  // `hosts` outlives this object.
  HangWatch(net::asio::any_io_executor executor, const HostTable& hosts, double limit_seconds,
            HangReaction reaction, Ask ask, Report report);

  // All ranks run. The coroutine shares the object: its loop may outlive the launch.
  static net::Task<void> run(std::shared_ptr<HangWatch> self);
  void stop();
  void has_written(int rank) { rule_.moved(rank); }

 private:
  template <typename Each>
  static std::map<int, Each> by_rank(const HostTable& hosts, const std::vector<std::string>& texts,
                                     Result<std::vector<Each>> (*decode)(std::string_view));
  std::vector<int> running() const;
  net::Task<void> look();
  void report(const HangRule::Finding& finding);

  const HostTable& hosts_;
  const Ask ask_;
  const Report report_;
  HangRule rule_;
  bool is_over_ = false;
  net::asio::steady_timer timer_;
};

}  // namespace hvd::launcher
