// Steps of horovodrun that belong to no other file.
#pragma once

#include "base/result.h"
#include "launcher/job/job.h"
#include "launcher/output/output_folder.h"
#include "launcher/output/report.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Answers a question (see is_question()). Returns the exit code.
int answer(const Options& options);

// Plans -np ranks on the chosen hosts. Keeps the spare hosts of --spares out of the plan, and returns them in `spares`.
Result<SlotPlan> make_plan(const Options& options, std::vector<Host>* spares = nullptr);

// Returns whether the hosts join by themselves (--listen).
bool is_joined(const Options& options);
int run_joined_job(const Options& options, const LaunchEvents& events);

// Returns the directory of --output-filename for the whole job. Prints a warning, if any, and where the files of an
// earlier run are.
Result<OutputFolder> take_output_folder(const LaunchSettings& settings);

// Prints the plan for --dry-run. Returns the exit code.
int show_plan(const Options& options, const SlotPlan& plan);

}  // namespace hvd::launcher
