#include "launcher/check_build.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "horovod/version.h"
#include "launcher/probe.h"

namespace hvd::launcher {

TEST_CASE("the layout is the one that scripts search") {
  const std::vector<CheckSection> sections = {
      {"Available Frameworks", {{"TensorFlow", false, "not there"}, {"PyTorch", true, ""}}},
      {"Available Tensor Operations", {{"MPI", false, "no"}, {"Gloo", true, ""}}}};
  CHECK(format_check(sections, false) ==
        "Horovod v" HVD_VERSION ":\n"
        "\n"
        "Available Frameworks:\n"
        "    [ ] TensorFlow\n"
        "    [X] PyTorch\n"
        "\n"
        "Available Tensor Operations:\n"
        "    [ ] MPI\n"
        "    [X] Gloo    \n");
  CHECK(format_check(sections, true).find("    [ ] TensorFlow: not there\n") != std::string::npos);
}

TEST_CASE("a probe works, or says why not") {
  const auto outcome = [](std::function<std::string()> body, double seconds = 10) {
    return Probe(body).wait(Deadline::after_seconds(seconds));
  };
  CHECK(outcome([] { return ""; }).works);
  CHECK(outcome([] { return "no such thing"; }).why == "no such thing");
  CHECK(outcome([] { return become({"sh", "-c", "echo a >&2; echo 'the reason' >&2; exit 4"}, {}); })
            .why == "the reason");
  CHECK(outcome([] { return become({"sh", "-c", "exit 4"}, {}); }).why ==
        "it ended with exit code 4");
  CHECK(outcome([] { return become({"sh", "-c", "test $X = 1"}, {{"X", "1"}}); }).works);
  CHECK(outcome([] { return become({"no-such-program-here"}, {}); }).why ==
        "cannot run no-such-program-here: No such file or directory");
  CHECK(outcome([]() -> std::string {
          ::raise(SIGKILL);
          return "";
        }).why == "it crashed by SIGKILL");
  CHECK(outcome([]() -> std::string {
          ::pause();
          return "";
        }, 0.1).why == "it did not answer in time");
}

}  // namespace hvd::launcher
