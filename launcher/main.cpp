#include <cstdio>
#include <string>
#include <vector>

#include "base/limits/last_resort.h"
#include "base/log/log.h"
#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "launcher/attempts.h"
#include "launcher/check/bug_report.h"
#include "launcher/check/doctor.h"
#include "launcher/check/init.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/manual.h"
#include "launcher/cli/options.h"
#include "launcher/command.h"
#include "launcher/mpirun/start.h"
#include "launcher/observe/views/look_inside.h"
#include "launcher/observe/views/top.h"
#include "launcher/output/report.h"
#include "launcher/plan/installation.h"
#include "launcher/state/detached_run.h"
#include "launcher/state/record_writer.h"
#include "net/asio.h"

int main(int argc, char** argv) {
  using namespace hvd;
  using namespace hvd::launcher;
  open_standard_streams();
  set_up_signals();
  end_by_sentence("horovodrun", kExitLauncher, net::error_number_of);
  const std::vector<std::string> arguments = with_help_first({argv + 1, argv + argc});
  if (asks_about_jobs(arguments)) return answer_about_jobs(arguments);
  if (asks_for_top(arguments)) return show_top(arguments);
  log::set_identity("horovodrun");
  log::set_timestamps(false);
  leave_tool_environment(installation_prefix(executable_folder()));
  if (asks_for_report(arguments)) return write_report(arguments);
  if (asks_for_config(arguments)) return make_config(arguments);
  if (asks_for_doctor(arguments)) return run_doctor(arguments);
  if (arguments.empty()) {
    std::fputs(first_screen().c_str(), stderr);
    return kExitBadInput;
  }
  MessageForm form;
  auto options = parse_options(arguments, &form);
  if (form.is_json) log::set_format(log::Format::kJson);
  color_messages(form.color);
  if (!options.ok()) return refuse(options.status());
  if (is_question(*options)) return answer(*options);
  notify_of_unread_config(*options);
  if (is_started_by_mpi(*options)) return run_by_mpi(*options);
  const Launch launch = [&options](const DetachedEvents& events) {
    return record_job(options->settings, options->command, events,
                      [&options](const LaunchEvents& events) {
                        return is_joined(*options) ? run_joined_job(*options, events)
                                                   : run_attempts(*options, events);
                      });
  };
  if (is_detached(*options)) {
    options->script = find_ending_script();
    return run_detached(options->settings, options->script, launch);
  }
  return launch({});
}
