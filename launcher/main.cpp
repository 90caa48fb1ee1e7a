#include <string>
#include <vector>

#include "base/standard_streams.h"
#include "launcher/command.h"

int main(int argc, char** argv) {
  using namespace hvd::launcher;
  hvd::open_standard_streams();
  const auto options = parse_options(std::vector<std::string>(argv + 1, argv + argc));
  if (!options.ok()) return refuse(options.status());
  if (is_question(*options)) return answer(*options);
  if (is_joined(*options)) return run_joined_job(*options);
  const auto plan = make_plan(*options);
  if (!plan.ok()) return refuse(plan.status());
  if (options->settings.flag("dry_run")) return show_plan(*options, *plan);
  return run_job(*options, *plan);
}
