#include "launcher/output/log_queue.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/text.h"
#include "launcher/state/log_files.h"

namespace hvd::launcher {
namespace {

// Returns the lines of one packet, or an empty list.
std::string next_lines(int socket) {
  std::array<char, 64 << 10> packet;
  const ssize_t size = ::recv(socket, packet.data(), packet.size(), MSG_DONTWAIT);
  if (size <= 0) return "";
  std::string_view rest(packet.data(), static_cast<size_t>(size));
  const auto lines = take_lines(rest);
  REQUIRE(lines.ok());
  REQUIRE(lines->has_value());
  return (*lines)->bytes;
}

}  // namespace

TEST_CASE("a log that is written too slowly loses the oldest output that waits, and says where") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  LogQueue queue{UniqueFd(pair[0])};
  const UniqueFd reader(pair[1]);
  constexpr int kLines = 12000;
  const auto line = [](int number) { return cat(std::string(1000, 'x'), number, "\n"); };
  size_t written = 0;
  for (int i = 0; i < kLines; ++i) {
    queue.write(0, i % 2 == 0, line(i));
    written += line(i).size();
  }
  CHECK(queue.missing() > 8 << 20);
  CHECK(!queue.flush());
  queue.keep_newest(10000);

  int next = 0;
  size_t read = 0, lost = 0;
  while (!queue.flush() || read + lost < written) {
    const std::string lines = next_lines(reader.get());
    if (lines.empty()) break;
    if (const auto words = lines.find(" bytes of output are missing here"); words != lines.npos) {
      CHECK(lost == 0);
      const size_t from = lines.find_first_of("0123456789");
      lost = static_cast<size_t>(*parse_int(lines.substr(from, words - from)));
      next = kLines - 9;
      continue;
    }
    CHECK(lines == line(next++));
    read += lines.size();
  }
  CHECK(next == kLines);
  CHECK(read + lost == written);
  CHECK(lost > written / 2);
  CHECK(queue.missing() == 0);
}

}  // namespace hvd::launcher
