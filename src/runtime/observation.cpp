#include "runtime/observation.h"

#include "base/log/log.h"
#include "base/metrics/metrics_text.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// Time limit for replies. Helper threads of other ranks reply in milliseconds; writing a long timeline takes longer.
constexpr double kAnswerSeconds = 30;
constexpr double kLeaveSeconds = 10;

}  // namespace

Observation::Observation(const Identity& identity, const WorkerSettings& settings,
                         bool on_roots_machine, RuntimeCore* core, PluginHost* host,
                         Progress* progress)
    : identity_(identity),
      host_name_(host_name(settings)),
      wanted_path_(identity.rank == 0 ? timeline_path(settings.timeline, identity.generation)
                                      : std::string()),
      wanted_marks_(settings.timeline_marks_cycles),
      core_(core),
      host_(host),
      progress_(progress),
      timeline_({identity.rank, identity.size, on_roots_machine, host_name_},
                &core->instruments().trace, links(ServiceId::kTimeline)),
      metrics_(
          identity.rank, identity.size,
          [this]() HVD_REQUIRES(progress_->progress_lock()) { return own_metrics(); },
          links(ServiceId::kMetrics)) {
  const MutexLock lock(progress_->progress_lock());
  core_->set_service(ServiceId::kTimeline, &timeline_);
  core_->set_service(ServiceId::kMetrics, &metrics_);
}

ServiceLinks Observation::links(ServiceId id) {
  const auto post = [host = host_](std::function<void()> what) {
    const hvd_plugin_host* vtable = host->vtable();
    vtable->post(
        vtable->host,
        [](void* argument) {
          const std::unique_ptr<std::function<void()>> posted(
              static_cast<std::function<void()>*>(argument));
          (*posted)();
        },
        new std::function<void()>(std::move(what)));
  };
  return {[this, id](ByteView message) { core_->to_root(id, message); },
          [this, id](ByteView message) { core_->to_all(id, message); }, post};
}

MetricsOfRank Observation::own_metrics() const {
  MetricsOfRank own{identity_.rank, host_name_, *core_->instruments().metrics};
  own.metrics.pending = core_->pending();
  own.groups = core_->groups().calls();
  return own;
}

// The thread that drives the core sends the request, so that no caller waits for the progress lock.
Result<std::string> Observation::ask(bool of_all, Asking asking, double seconds) {
  const auto question = std::make_shared<Question>();
  links(ServiceId::kMetrics).post([this, of_all, asking = std::move(asking), question] {
    const Status reason = of_all ? core_->refusal() : Status();
    if (reason.ok())
      asking(question);
    else
      question->answer(reason);
  });
  if (!progress_->wait(question->done, Deadline::after_seconds(seconds))) {
    return deadline_exceeded(cat("rank ", identity_.rank,
                                 " got no answer of the other ranks; one "
                                 "of them may be stopped"));
  }
  if (!question->status.ok()) return question->status;
  return question->text;
}

void Observation::begin() {
  if (wanted_path_.empty() || wanted_path_ == kStartedByProgram) return;
  if (Status status = start_timeline(wanted_path_, wanted_marks_); !status.ok()) {
    log::warning(status.message() + "; the job goes on without a timeline");
  }
}

Status Observation::start_timeline(const std::string& path, bool mark_cycles) {
  if (path.empty()) return invalid_argument("a timeline needs the path of its file");
  const auto started = ask(
      true,
      [this, path, mark_cycles](const std::shared_ptr<Question>& question) {
        timeline_.start(path, mark_cycles, question);
      },
      kAnswerSeconds);
  return started.ok() ? Status() : started.error();
}

Status Observation::stop_timeline() {
  const auto stopped = ask(
      true, [this](const std::shared_ptr<Question>& question) { timeline_.stop(question); },
      kAnswerSeconds);
  return stopped.ok() ? Status() : stopped.error();
}

Result<std::string> Observation::metrics(hvd_metrics_scope scope) {
  return ask(
      scope == HVD_METRICS_JOB,
      [this, scope](const std::shared_ptr<Question>& question) {
        if (scope == HVD_METRICS_JOB) return metrics_.ask_job(question);
        if (scope == HVD_METRICS_RANK) return metrics_.ask_rank(question);
        question->text =
            step_text(rank_labels(identity_.rank, host_name_), *core_->instruments().steps);
        question->answer({});
      },
      kAnswerSeconds);
}

void Observation::before_leave() {
  {
    const MutexLock lock(progress_->progress_lock());
    if (!timeline_.is_on()) return;
  }
  const auto stopped = ask(
      true, [this](const std::shared_ptr<Question>& question) { timeline_.stop(question); },
      kLeaveSeconds);
  if (!stopped.ok()) log::debug(stopped.error().message());
}

}  // namespace hvd::runtime
