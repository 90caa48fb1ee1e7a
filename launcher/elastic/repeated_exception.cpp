#include "launcher/elastic/repeated_exception.h"

#include <utility>

#include "base/text.h"

namespace hvd::launcher {

void RepeatedException::failed(const std::string& exception, int exit_code,
                               const Failure& failure) {
  // Horovod raises this one on ranks that another rank's failure has reached.
  if (exception.empty() || exception.find("HorovodInternalError") != std::string::npos) return;
  if (!repetition_ || repetition_->exception != exception || repetition_->exit_code != exit_code) {
    repetition_ = Repetition{exception, exit_code, failure, {}};
    return;
  }
  const Failure& first = repetition_->first;
  const bool is_elsewhere = first.host != failure.host || first.slot == failure.slot;
  if (failure.generation > first.generation && is_elsewhere) repetition_->again = failure;
}

void RepeatedException::committed(int32_t generation) {
  if (!repetition_ || generation <= repetition_->first.generation) return;
  if (!repetition_->again) return repetition_.reset();
  repetition_->first = *std::exchange(repetition_->again, {});
}

std::optional<RepeatedException::Verdict> RepeatedException::verdict() const {
  if (!repetition_ || !repetition_->again) return std::nullopt;
  return Verdict{
      .exit_code = repetition_->exit_code,
      .process = repetition_->again->process,
      .sentence = cat(
          repetition_->again->sentence, "; ", repetition_->first.whose,
          " had failed with the same exception (", repetition_->exception, ") in generation ",
          repetition_->first.generation,
          ", and no rank has committed since: the program or its data is the cause, not a host")};
}

}  // namespace hvd::launcher
