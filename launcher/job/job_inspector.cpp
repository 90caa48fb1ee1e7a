#include "launcher/job/job_inspector.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/inspect/rank_names.h"
#include "launcher/job/elastic_job.h"
#include "launcher/job/silent_hosts.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

// A host that has not answered for so long gets no question: its answer would be waited for.
constexpr double kIsSilent = 2;

}  // namespace

JobInspector::JobInspector(const net::asio::any_io_executor& executor, const Options& options,
                           const SlotPlan& plan, const Supervisor& supervisor,
                           const std::vector<std::unique_ptr<AgentLink>>& links)
    : executor_(executor),
      options_(options),
      plan_(plan),
      supervisor_(supervisor),
      links_(links),
      inspection_(executor, plan.hosts.size(),
                  [this](size_t host, uint32_t number, InspectDetail detail) {
                    if (host >= links_.size() || !links_[host] || !silence_of(host).empty() ||
                        supervisor_.is_done(static_cast<int>(host))) {
                      return false;
                    }
                    links_[host]->inspect(number, detail);
                    return true;
                  }),
      commands_(executor, plan, [this](int rank, const Message& order) -> std::string {
        const auto host = static_cast<size_t>(plan_.slots[static_cast<size_t>(rank)].host);
        if (supervisor_.is_done(static_cast<int>(host)) || !links_[host]) {
          return "the rank has ended\n";
        }
        const std::string silence = silence_of(host);
        if (!silence.empty()) return cat("host ", plan_.hosts[host].name, ": ", silence, "\n");
        links_[host]->pass(order);
        return "";
      }) {}

std::string JobInspector::silence_of(size_t host) const {
  if (host >= links_.size() || !links_[host] || supervisor_.is_done(static_cast<int>(host))) {
    return "";
  }
  const double seconds = links_[host]->silence_seconds();
  return seconds >= kIsSilent ? describe_silence(seconds) : "";
}

void JobInspector::on_silence(int host, double seconds) {
  if (seconds < kIsSilent) return;
  inspection_.give_up(static_cast<size_t>(host));
  commands_.on_silence(host, cat("host ", plan_.hosts[static_cast<size_t>(host)].name, ": ",
                                 describe_silence(seconds), "\n"));
}

void JobInspector::set_elastic(ElasticJob* elastic) {
  elastic_ = elastic;
  commands_.set_members([elastic] { return elastic->generations().table().members(); });
}

void JobInspector::open() {
  auto server =
      InspectionServer::open(executor_, [this](std::string request, net::StreamSocket& caller) {
        return answer(std::move(request), caller);
      });
  if (!server.ok())
    log::info(cat("horovodrun ps cannot see this job: ", server.status().message()));
  else
    server_ = *std::move(server);
}

// Sends the caller records as exec does: Said or the reason why not, then an exit code.
net::Task<void> JobInspector::change(const std::vector<std::string>& words,
                                     net::StreamSocket& caller) {
  const auto sentence =
      elastic_ != nullptr
          ? elastic_->change(words)
          : Result<std::string>(failed_precondition(
                "the number of ranks of this job is constant; start the job with --min-np or "
                "--host-discovery-script to change it"));
  Ran end{.why = {}};
  if (sentence.ok()) {
    const Message said = Said{.bytes = *sentence + "\n"};
    co_await send_record(caller, said);
  } else {
    end.code = kExitBadInput;
    end.why = cat("horovodrun: ", sentence.status().message(), "\n");
  }
  const Message last = std::move(end);
  co_await send_record(caller, last);
}

net::Task<void> JobInspector::answer(std::string request, net::StreamSocket& caller) {
  constexpr std::string_view kRun = "exec ";
  if (request.starts_with(kRun)) {
    // A link's message, in hexadecimal digits.
    const auto bytes = from_hex(std::string_view(request).substr(kRun.size()));
    auto message = bytes.ok() ? decode(*bytes) : Result<Message>(bytes.status());
    Run* run = message.ok() ? std::get_if<Run>(&*message) : nullptr;
    if (run != nullptr) co_return co_await commands_.run(std::move(*run), caller);
    const Message refusal =
        Ran{.code = kExitBadInput,
            .why = "this is no order to run a command: is it of another release?\n"};
    co_await send_record(caller, refusal);
    co_return;
  }
  const std::vector<std::string> words = split(request, ' ');
  if (words[0] == "resize" || words[0] == "remove") co_return co_await change(words, caller);
  const auto detail = request == "stack" ? InspectDetail::kStacks : InspectDetail::kProcess;
  inspection_.grow(plan_.hosts.size());
  std::vector<std::string> hosts = co_await inspection_.run(detail);
  std::string text = cat("horovodrun, pid ", ::getpid(), ", ");
  if (elastic_ != nullptr && elastic_->generations().generation() >= 0) {
    const Generations& now = elastic_->generations();
    text += cat("generation ", now.generation(), ", ",
                count_of_ranks(std::ssize(now.table().members())));
    for (std::string& host : hosts) {
      host = with_present_ranks(host, [&now](int process) { return now.table().rank_of(process); });
    }
  } else {
    text += count_of_ranks(plan_.size());
  }
  text += cat(": ", printable(join(options_.command, " ")), "\n");
  for (size_t host = 0; host < hosts.size(); ++host) {
    const bool is_done = supervisor_.is_done(static_cast<int>(host));
    const auto is_it = [&name = plan_.hosts[host].name](const Host& one) {
      return one.name == name;
    };
    const bool has_begun_again = std::any_of(
        plan_.hosts.begin() + static_cast<std::ptrdiff_t>(host) + 1, plan_.hosts.end(), is_it);
    if (is_done && has_begun_again) continue;
    const std::string silence = silence_of(host);
    text += cat("host ", plan_.hosts[host].name,
                is_done                ? ": has ended\n"
                : !hosts[host].empty() ? "\n"
                : !silence.empty()     ? cat(": ", silence, "\n")
                                       : ": no rank runs\n",
                is_done ? "" : hosts[host]);
  }
  co_await net::asio::async_write(caller, net::asio::buffer(text), net::use_tuple);
}

}  // namespace hvd::launcher
