#include "base/log/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

using namespace hvd;

TEST_CASE("the writer gets whole lines, and the lines that it refuses go to standard error") {
  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const UniqueFd before(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  REQUIRE((file && before));
  ::dup2(file.get(), STDERR_FILENO);
  log::set_timestamps(false);
  std::vector<std::string> taken;
  log::warning("before");
  log::set_writer([&](std::string_view line) {
    if (line.find("refused") != std::string_view::npos) return false;
    taken.emplace_back(line);
    // The writer logs, and removes itself.
    if (taken.size() == 1) log::warning("within");
    if (taken.size() == 3) log::set_writer({});
    return true;
  });
  log::warning("taken");
  log::info("below the level");
  log::error("refused");
  log::error("last");
  log::error("after");
  ::dup2(before.get(), STDERR_FILENO);
  log::set_timestamps(true);
  CHECK(taken ==
        std::vector<std::string>{"[warning] taken\n", "[warning] within\n", "[error] last\n"});
  std::string said(200, '\0');
  said.resize(
      static_cast<size_t>(std::max<ssize_t>(0, ::pread(file.get(), said.data(), said.size(), 0))));
  CHECK(said == "[warning] before\n[error] refused\n[error] after\n");
}
