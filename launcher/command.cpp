#include "launcher/command.h"

#include <cstdio>

#include "base/check.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/check_build.h"
#include "launcher/dry_run.h"
#include "launcher/hosts.h"

namespace hvd::launcher {
namespace {

// 0 when all of it was written.
int print(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? 0 : kExitLauncher;
}

Result<std::vector<Host>> chosen_hosts(const Settings& settings) {
  if (settings.is_set("hosts")) {
    auto hosts = parse_hosts(settings.text("hosts"));
    if (!hosts.ok()) return hosts.status().with_context("-H");
    return hosts;
  }
  if (settings.is_set("hostfile")) return read_hostfile(settings.text("hostfile"));
  return std::vector<Host>{{"localhost", "", static_cast<int>(settings.integer("num_proc"))}};
}

}  // namespace

bool is_question(const Options& options) {
  return options.help || options.settings.flag("version") || options.settings.flag("check_build");
}

int answer(const Options& options) {
  if (options.help) return print(help_text());
  if (options.settings.flag("version")) return print(HVD_VERSION "\n");
  return print(check_build(options.settings));
}

Result<SlotPlan> make_plan(const Options& options) {
  HVD_ASSIGN_OR_RETURN(const auto hosts, chosen_hosts(options.settings));
  std::optional<int> num_proc;
  if (options.settings.is_set("num_proc")) {
    num_proc = static_cast<int>(options.settings.integer("num_proc"));
  }
  return plan_slots(hosts, num_proc);
}

int show_plan(const Options& options, const SlotPlan& plan) {
  return print(plan_as_json(plan, options.settings.number("start_timeout")));
}

}  // namespace hvd::launcher
