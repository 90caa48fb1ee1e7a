// The first line of a program file from a user, and the environment after the command of
// --remote-init.
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "base/unique_fd.h"
#include "fuzz/target.h"
#include "launcher/protocol/program.h"

HVD_FUZZ_TARGET(script) {
  using namespace hvd;
  using namespace hvd::launcher;
  const UniqueFd file(::memfd_create("program", MFD_CLOEXEC));
  HVD_CHECK(file && ::write(file.get(), data, size) == static_cast<ssize_t>(size));
  const std::string path = cat("/proc/self/fd/", file.get());
  const std::string search_path = "/bin:/usr/bin";
  const std::string interpreter = interpreter_of(path, "/", search_path);
  HVD_CHECK(interpreter.empty() || interpreter.front() == '/');
  HVD_CHECK(interpreter.find('\n') == std::string::npos && interpreter.size() < 300);
  const std::string python = python_of(path, "/", search_path);
  HVD_CHECK(python.empty() || is_python(python));
  if (const auto found = find_program(path, "/", search_path); found.ok()) {
    HVD_CHECK(*found == path);
  } else {
    // The message escapes everything except the path.
    for (const unsigned char c : found.error().message()) HVD_CHECK(c >= 0x20);
  }
  for (const auto& [name, value] : parse_environment(text)) {
    HVD_CHECK(!name.empty() && name.find('=') == std::string::npos);
    HVD_CHECK((name + value).find('\0') == std::string::npos);
  }
}
