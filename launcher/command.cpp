#include "launcher/command.h"

#include <cstdio>

#include "base/check.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/check_build.h"
#include "launcher/dry_run.h"
#include "launcher/host_choice.h"
#include "launcher/manual.h"

namespace hvd::launcher {
namespace {

// 0 when all of it was written.
int print(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? 0 : kExitLauncher;
}

}  // namespace

int answer(const Options& options) {
  const Settings& settings = options.settings;
  if (settings.flag("help")) return print(help_text());
  if (settings.flag("version")) return print(HVD_VERSION "\n");
  if (settings.is_set("completion")) return print(completion(to_lower(settings.text("completion"))));
  if (settings.is_set("manual")) return print(manual(to_lower(settings.text("manual"))));
  return print(check_build(settings));
}

Result<SlotPlan> make_plan(const Options& options) {
  HVD_ASSIGN_OR_RETURN(const auto hosts, choose_hosts(options.settings));
  std::optional<int> num_proc;
  if (options.settings.is_set("num_proc")) {
    num_proc = static_cast<int>(options.settings.integer("num_proc"));
  }
  return plan_slots(hosts, num_proc);
}

int show_plan(const Options& options, const SlotPlan& plan) {
  return print(plan_as_json(plan, options.settings));
}

}  // namespace hvd::launcher
