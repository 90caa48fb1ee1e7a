// The steps of horovodrun that main calls and that belong to no other file.
#pragma once

#include "base/result.h"
#include "launcher/cli/options.h"
#include "launcher/job/job.h"
#include "launcher/output/output_folder.h"
#include "launcher/output/report.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

// Answers a question as is_question() defines it; the exit code.
int answer(const Options& options);

// From the hosts that were chosen, and -np; without those of --spares, which are for the caller.
Result<SlotPlan> make_plan(const Options& options, std::vector<Host>* spares = nullptr);

// --listen: the hosts join by themselves.
bool is_joined(const Options& options);
int run_joined_job(const Options& options, const LaunchEvents& events);

// The directory of --output-filename, for the whole job. Says where the files of an earlier run are.
Result<OutputFolder> take_output_folder(const LaunchSettings& settings);

// --dry-run.
int show_plan(const Options& options, const SlotPlan& plan);

}  // namespace hvd::launcher
