#include "launcher/plan/launch_options.h"

namespace hvd::launcher {

bool is_question(const Options& options) {
  const LaunchSettings& settings = options.settings;
  return settings.questions.help || settings.questions.help_all || settings.questions.version ||
         settings.questions.check_build || settings.questions.require.has_value() ||
         settings.questions.completion.has_value() || settings.questions.manual.has_value();
}

bool is_detached(const Options& options) {
  return options.settings.job.detach && !options.settings.job.dry_run;
}

}  // namespace hvd::launcher
