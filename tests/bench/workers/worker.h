// A rank of a team that the benches drive: it reads commands from the driver's socket, and sleeps
// in read() between them, so that teams that take turns do not disturb each other.
//
//   from the worker:  hello RANK                 once
//   from the driver:  VERB ARGUMENT...           the same to all ranks; "quit" ends
//   from the worker:  ok NUMBER...  |  no SENTENCE
//
// One thread. Included by one source per program.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

using Words = std::vector<std::string>;
using Verb = std::function<std::vector<double>(const Words& arguments)>;

inline double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the median duration of `step` in microseconds, after three warm-up calls.
inline double median_us(int iterations, const std::function<void()>& step) {
  for (int i = 0; i < 3; ++i) step();
  std::vector<double> times;
  for (int i = 0; i < iterations; ++i) {
    const double start = now_us();
    step();
    times.push_back(now_us() - start);
  }
  return median(std::move(times));
}

// allreduce(data, count) sums in place. Returns the median of `iterations` in microseconds.
template <typename Allreduce>
double time_allreduce(float* data, size_t bytes, int iterations, int ranks, Allreduce allreduce) {
  const size_t count = bytes / sizeof(float);
  std::fill(data, data + count, 1.0f);
  allreduce(data, count);
  if (data[0] != static_cast<float>(ranks) || data[count - 1] != static_cast<float>(ranks)) {
    throw std::runtime_error("the sum is wrong");
  }
  std::fill(data, data + count, 0.0f);  // zeros stay zero in any number of sums
  return median_us(iterations, [&] { allreduce(data, count); });
}

inline int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error(path + ": " + std::strerror(errno));
  }
  return fd;
}

inline std::string answer(const std::map<std::string, Verb>& verbs, const Words& command) {
  const auto verb = verbs.find(command.at(0));
  if (verb == verbs.end()) return "no there is no verb " + command.at(0);
  try {
    std::ostringstream out;
    out << "ok";
    out.precision(9);
    for (double number : verb->second({command.begin() + 1, command.end()})) out << ' ' << number;
    return out.str();
  } catch (const std::exception& error) {
    return std::string("no ") + error.what();
  }
}

// Serves commands of the driver at `path` until "quit" or the end of the connection.
inline void serve(const std::string& path, int rank, const std::map<std::string, Verb>& verbs) {
  const int fd = connect_to(path);
  FILE* in = ::fdopen(fd, "r");
  ::dprintf(fd, "hello %d\n", rank);
  char line[4096];
  while (std::fgets(line, sizeof(line), in) != nullptr) {
    std::istringstream words(line);
    Words command;
    for (std::string word; words >> word;) command.push_back(word);
    if (command.empty() || command[0] == "quit") break;
    ::dprintf(fd, "%s\n", answer(verbs, command).c_str());
  }
  std::fclose(in);
}

}  // namespace bench
