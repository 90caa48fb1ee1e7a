#include "launcher/output/output_style.h"

#include <utility>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {

Result<OutputStyle> output_style(const LaunchSettings& settings, int size, uint32_t generation,
                                 bool is_elastic, int asking_rank) {
  OutputStyle style;
  style.directory = settings.output.output_filename.value_or("");
  style.is_continued = generation > 0;
  style.tag = settings.output.tag;
  const bool is_smart = environment_variable("TERM").value_or("dumb") != "dumb";
  style.colors = color_rule(settings.output.color);
  style.may_show_status = is_smart && !settings.output.no_progress;
  style.folds = settings.output.fold;
  // Programs read objects, and the ranks of an elastic job have other numbers in later generations.
  style.folds_tracebacks =
      !settings.job.verbose && !is_elastic && to_lower(settings.output.log_format) != "json";
  style.has_timestamps = settings.output.prefix_timestamp;
  if (to_lower(settings.output.log_format) == "json") style.format = LineFormat::kJson;
  if (settings.output.only_rank.has_value()) {
    auto shown =
        parse_ranks(settings.output.only_rank.value_or(""), generation > 0 ? kMaxSlots : size);
    if (!shown.ok()) return shown.status().with_context("--only-rank");
    style.is_shown = *std::move(shown);
  }
  style.asking_rank = asking_rank;
  return style;
}

}  // namespace hvd::launcher
