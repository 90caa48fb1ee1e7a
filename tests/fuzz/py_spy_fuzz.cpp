// The output of py-spy about a foreign process, whose names are arbitrary, and the output of faulthandler.
#include <string>

#include "fuzz/target.h"
#include "launcher/agent/stacks/named_wait.h"
#include "launcher/agent/stacks/python_stack.h"

namespace {

void check(const hvd::launcher::PythonStack& stack) {
  const auto is_plain = [](const std::string& text) {
    for (const unsigned char c : text) HVD_CHECK(c >= 0x20 && c != 0x7f);
  };
  for (const auto& frame : stack) is_plain(describe_frame(frame));
  is_plain(place_of(stack));
  hvd::launcher::WaitSigns signs{
      .stack = stack, .threads = {"pt_gloo_runloop"}, .has_mpi = true, .line = {}};
  if (source_to_read(signs) != nullptr) signs.line = source_to_read(signs)->function;
  is_plain(describe_wait(named_wait(signs)));
}

}  // namespace

HVD_FUZZ_TARGET(py_spy) {
  if (const auto stack = hvd::launcher::read_py_spy(text, 7); stack.ok()) check(*stack);
  check(hvd::launcher::read_faulthandler(text));
}
