// The steps of horovodrun that main calls and that belong to no other file.
#pragma once

#include "base/result.h"
#include "launcher/job/job.h"
#include "launcher/output/output_folder.h"
#include "launcher/output/report.h"
#include "launcher/plan/launch_options.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Answers a question as is_question() defines it; the exit code.
int answer(const Options& options);

// Plans the ranks from the chosen hosts and -np, without the spare hosts of --spares, which the caller gets.
Result<SlotPlan> make_plan(const Options& options, std::vector<Host>* spares = nullptr);

// --listen: the hosts join by themselves.
bool is_joined(const Options& options);
int run_joined_job(const Options& options, const LaunchEvents& events);

// Returns the directory of --output-filename for the whole job. Prints where the files of an earlier run are.
Result<OutputFolder> take_output_folder(const LaunchSettings& settings);

// --dry-run.
int show_plan(const Options& options, const SlotPlan& plan);

}  // namespace hvd::launcher
