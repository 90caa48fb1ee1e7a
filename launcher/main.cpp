#include <string>
#include <vector>

#include "base/standard_streams.h"
#include "launcher/attempts.h"
#include "launcher/command.h"
#include "launcher/look_inside.h"
#include "launcher/mpirun/start.h"

int main(int argc, char** argv) {
  using namespace hvd::launcher;
  hvd::open_standard_streams();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (asks_about_jobs(arguments)) return answer_about_jobs(arguments);
  const auto options = parse_options(arguments);
  if (!options.ok()) return refuse(options.status());
  if (is_question(*options)) return answer(*options);
  if (is_started_by_mpi(*options)) return run_by_mpi(*options);
  if (is_joined(*options)) return run_joined_job(*options);
  return run_attempts(*options);
}
