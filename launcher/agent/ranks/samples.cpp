#include "launcher/agent/ranks/samples.h"

#include <utility>

namespace hvd::launcher {
namespace {

constexpr double kSecondsForGpus = 0.5;

}  // namespace

void Samples::begin(const TakeSample& question) {
  const RankCommand* const like =
      question.groups.has(SampleGroup::kGpus) ? ranks_.any_command() : nullptr;
  if (like != nullptr) gpus_.look(*like);
  if (like == nullptr || !gpus_.is_asking()) return answer(question);
  waiting_.push_back(question);
  if (waiting_.size() == 1) limit_ = Deadline::after_seconds(kSecondsForGpus);
}

void Samples::answer(const TakeSample& question) {
  HostSample sample = ranks_.sample(question.groups, gpus_.use());
  for (HostMetrics& metrics : sample.metrics) metrics.remark = gpus_.why();
  send_(Sampled{question.number, std::move(sample)});
}

void Samples::answer_waiting() {
  limit_ = Deadline::never();
  for (const TakeSample& question : std::exchange(waiting_, {})) answer(question);
}

Deadline Samples::deadline() const {
  return limit_.time() < gpus_.deadline().time() ? limit_ : gpus_.deadline();
}

void Samples::on_deadline() {
  if (gpus_.deadline().passed()) gpus_.on_deadline();
  if (limit_.passed()) answer_waiting();
}

}  // namespace hvd::launcher
