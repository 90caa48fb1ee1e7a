// Findings: rules of NCCL and of CUDA that the caller broke. See README.md.
#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {
namespace {

constexpr int kExitCode = 86;
constexpr int kPrinted = 3;  // findings per rule that are printed with their stacks
constexpr int kStack = 40;

struct Findings {
  Mutex mutex;
  std::vector<std::string> sentences HVD_GUARDED_BY(mutex);
  std::map<std::string_view, int> printed HVD_GUARDED_BY(mutex);
  bool is_exit_watched HVD_GUARDED_BY(mutex) = false;
};
Findings& findings() {
  static auto* const all = new Findings;
  return *all;
}

void end_with_findings() {
  Findings& all = findings();
  const MutexLock lock(all.mutex);
  const size_t count = all.sentences.size();
  if (count == 0) return;
  std::fprintf(stderr, "double: %zu findings\n", count);
  std::fflush(nullptr);
  ::_exit(kExitCode);
}

bool names(const char* variable, std::string_view wanted) {
  const char* value = std::getenv(variable);
  std::string_view list = value == nullptr ? "" : value;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == wanted || list.substr(0, end) == "all") return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

bool is_checked(const Rule& rule) {
  return rule.is_always_checked || names("HVD_DOUBLE_RULES", rule.name);
}

bool is_ignored(const char* call) {
  if (std::getenv("HVD_DOUBLE_IGNORES") == nullptr) return false;
  char thread[16] = "";
  ::pthread_getname_np(::pthread_self(), thread, sizeof thread);
  return names("HVD_DOUBLE_IGNORES", call) ||
         names("HVD_DOUBLE_IGNORES", std::string(call) + "@" + thread);
}

void report(const Rule& rule, const std::string& sentence) {
  if (!is_checked(rule)) return;
  log(std::string("finding ") + rule.name + ": " + sentence);
  Findings& all = findings();
  const MutexLock lock(all.mutex);
  all.sentences.push_back(std::string(rule.name) + ": " + sentence);
  if (!std::exchange(all.is_exit_watched, true)) std::atexit(end_with_findings);
  if (++all.printed[rule.name] > kPrinted) return;
  std::fprintf(stderr, "double: %s: %s\n", rule.name, sentence.c_str());
  void* frames[kStack];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, kStack), STDERR_FILENO);
}

}  // namespace hvd::test_double

#pragma GCC visibility push(default)
extern "C" {

// Copies the findings as lines and clears them. Returns their number.
int hvd_double_take_findings(char* text, size_t size) {
  using namespace hvd::test_double;
  Findings& all = findings();
  const hvd::MutexLock lock(all.mutex);
  std::string lines;
  for (const std::string& sentence : all.sentences) lines += sentence + '\n';
  const auto count = static_cast<int>(all.sentences.size());
  all.sentences.clear();
  if (size > 0) {
    const size_t copied = std::min(size - 1, lines.size());
    std::memcpy(text, lines.data(), copied);
    text[copied] = '\0';
  }
  return count;
}

}  // extern "C"
#pragma GCC visibility pop
