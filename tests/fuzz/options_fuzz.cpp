// The input is a command line, its words separated by newlines.
#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/cli/options.h"
#include "launcher/mpirun/arguments.h"

HVD_FUZZ_TARGET(options) {
  const auto options = hvd::launcher::parse_options(hvd::split(text, '\n'));
  HVD_CHECK(options.ok() || !options.status().message().empty());
  using namespace hvd::launcher;
  const auto node = parse_lsf_node(text, text, text);
  HVD_CHECK(node.ok() || !node.status().message().empty());
  const auto flavour = flavour_of(text);
  if (!options.ok()) return;
  hvd::Settings settings;
  HVD_CHECK(settings.set("mpi_args", text).ok());
  const auto plan = plan_slots({{"a", "", 2}, {"b", "", 2}}, {});
  const auto line = mpirun_arguments(flavour.value_or(MpiFlavour::kOpenMpi),
                                     {LaunchSettings(settings), options->command}, *plan, {});
  HVD_CHECK(line.ok() || !line.status().message().empty());
}
