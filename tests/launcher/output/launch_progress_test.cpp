#include "launcher/output/launch_progress.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("hosts on their way are shown with their stage, the slowest first") {
  const std::vector<HostProgress> hosts = {{"a", "prepare", 0, true},
                                           {"b", "authenticate", 1.9, false},
                                           {"c", "connect", 3.2, false},
                                           {"d", "prepare", 0, true}};
  CHECK(progress_line(hosts, 80) == "hosts ready 2/4; c: connect 3 s, b: authenticate 1 s");
  CHECK(progress_line(hosts, 40) == "hosts ready 2/4; c: connect 3 s, ...");
  CHECK(progress_line(hosts, 20) == "hosts ready 2/4");
  CHECK(progress_line({hosts[0]}, 80) == "hosts ready 1/1");
}

}  // namespace hvd::launcher
