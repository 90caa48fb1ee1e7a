// Describes unresponsive hosts: a status line after 5 s, one sentence after 15 s, and one sentence when the hosts
// answer again. SilenceWatch owns this object and passes it the events of the agents. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

class SilentHosts {
 public:
  // The table must outlive this object.
  explicit SilentHosts(const HostTable& hosts) : hosts_(hosts) {}

  // Call while the host has not answered for `seconds`. The host is lost after `limit_seconds`.
  void on_silence(int host, double seconds, double limit_seconds);
  void on_answer(int host);
  // Call when the host is lost, or when its ranks have ended.
  void on_gone(int host);

  // Returns each sentence once: "host b has not answered for 15 s (ranks 2-3); lost in 30 s".
  std::optional<std::string> take_news();
  // Returns the line for a terminal; empty while all hosts answer.
  std::string status_line() const;

 private:
  struct Silence {
    double seconds = 0;
    double limit_seconds = 0;
    bool is_reported = false;
  };
  // Returns "host b has not answered for 15 s (ranks 2-3); lost in 30 s".
  std::string describe(const std::vector<int>& hosts) const;
  std::vector<int> silent_for(double seconds) const;
  std::string names(const std::vector<int>& hosts) const;
  void report_answers();

  const HostTable& hosts_;
  std::map<int, Silence> silent_;
  // Hosts that have answered again after a report, and are not in the news yet.
  std::vector<int> answered_;
  std::vector<std::string> news_;
};

// Returns "host b", "hosts b and c" or "hosts a, b, c, d and 60 others".
std::string hosts_text(std::vector<std::string> names);

// Returns "no answer for 12 s", for example.
std::string describe_silence(double seconds);

}  // namespace hvd::launcher
