// The features that watch a job. Each feature is a file NAME.cpp of this folder, with a function NAME that returns its
// part. A new part needs a line here, and a line at its place in parts.cpp.
#pragma once

#include <memory>
#include <vector>

#include "launcher/observe/job_inspector.h"
#include "launcher/observe/job_part.h"

namespace hvd::launcher {

// `launch` must outlive the part.
std::shared_ptr<JobPart> awaited_ranks(PartLaunch& launch);
std::shared_ptr<JobPart> hang_watch(PartLaunch& launch);
std::shared_ptr<JobPart> input_relay(PartLaunch& launch);
std::shared_ptr<JobPart> loop_watch(PartLaunch& launch);
std::shared_ptr<JobPart> metrics_file(PartLaunch& launch);
std::shared_ptr<JobPart> metrics_server(PartLaunch& launch);
std::shared_ptr<JobPart> script_watch(PartLaunch& launch);
std::shared_ptr<JobPart> silence_watch(PartLaunch& launch);
std::shared_ptr<JobPart> start_watch(PartLaunch& launch);
std::shared_ptr<JobPart> status_line(PartLaunch& launch);
std::shared_ptr<JobPart> straggler_watch(PartLaunch& launch);
std::shared_ptr<JobPart> time_limit(PartLaunch& launch);

std::vector<std::shared_ptr<JobPart>> parts_of(PartLaunch& launch);

}  // namespace hvd::launcher
