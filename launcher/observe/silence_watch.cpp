// Prints a sentence about hosts that have not answered for 15 s, and another sentence when they answer again. After 5 s
// without an answer, replaces the status line on a terminal.

#include "launcher/observe/parts.h"
#include "launcher/observe/rules/silent_hosts.h"

namespace hvd::launcher {
namespace {

class SilenceWatch : public JobPart {
 public:
  explicit SilenceWatch(PartLaunch& launch) : launch_(launch), hosts_(launch.hosts()) {}

  void on(const JobEvent& event) override;

 private:
  PartLaunch& launch_;
  SilentHosts hosts_;
};

void SilenceWatch::on(const JobEvent& event) {
  if (const auto* silent = std::get_if<HostSilent>(&event))
    hosts_.on_silence(silent->host.number(), silent->seconds, silent->limit_seconds);
  else if (const auto* answered = std::get_if<HostAnswered>(&event))
    hosts_.on_answer(answered->host.number());
  else if (const auto* gone = std::get_if<HostGone>(&event))
    hosts_.on_gone(gone->host.number());
  else if (!std::holds_alternative<JobEnding>(event))
    return;
  while (const auto news = hosts_.take_news()) launch_.output().print(*news);
  // While the job ends, silent hosts are normal, and other limits apply.
  launch_.output().terminal().show_alarm(launch_.is_ending() ? "" : hosts_.status_line());
}

}  // namespace

std::shared_ptr<JobPart> silence_watch(PartLaunch& launch) {
  return std::make_shared<SilenceWatch>(launch);
}

}  // namespace hvd::launcher
