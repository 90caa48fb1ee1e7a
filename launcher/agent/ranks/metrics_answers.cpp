#include "launcher/agent/ranks/metrics_answers.h"

#include <utility>

#include "launcher/protocol/host_metrics.h"

namespace hvd::launcher {
namespace {

constexpr double kSecondsForGpus = 0.5;

}  // namespace

void MetricsAnswers::begin(const Inspect& question) {
  waiting_.push_back(question.number);
  const RankCommand* like = ranks_.any_command();
  if (question.detail == InspectDetail::kMetrics && like != nullptr) gpus_.look(*like);
  if (!gpus_.is_asking()) return answer();
  if (waiting_.size() == 1) limit_ = Deadline::after_seconds(kSecondsForGpus);
}

void MetricsAnswers::answer() {
  limit_ = Deadline::never();
  if (waiting_.empty()) return;
  HostMetrics metrics = ranks_.metrics(gpus_.use());
  metrics.remark = gpus_.why();
  const std::string text = encode(metrics);
  for (const uint32_t number : std::exchange(waiting_, {})) send_(Inspected{number, text});
}

Deadline MetricsAnswers::deadline() const {
  return limit_.time() < gpus_.deadline().time() ? limit_ : gpus_.deadline();
}

void MetricsAnswers::on_deadline() {
  if (gpus_.deadline().passed()) gpus_.on_deadline();
  if (limit_.passed()) answer();
}

}  // namespace hvd::launcher
