// The main of all doctest programs. A case that cannot run here prints MESSAGE("SKIP: why"): then
// the program, unless it failed, exits with ctest's code for skipped tests. The file that
// HVD_TEST_LEAVES_OUT names, for example not_emulated.txt, lists cases to leave out.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace {

constexpr int kSkipped = 77;
constexpr char kSubcase[] = "subcase: ";
bool any_skipped = false;

struct SkipListener : doctest::IReporter {
  explicit SkipListener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    const char* folder = std::getenv("HVD_WORLD_FOLDER");
    if (folder == nullptr) return;
    std::string path = std::string(folder) + "/verdict-XXXXXX";
    const int file = ::mkstemp(path.data());
    if (file >= 0) {
      ::dprintf(file, "%u cases, %u failed", stats.numTestCasesPassingFilters,
                stats.numTestCasesFailed);
      ::close(file);
    }
  }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData& message) override {
    const char* text = message.m_string.c_str();
    if (std::strncmp(text, "SKIP: ", 6) != 0) return;
    any_skipped = true;
    std::printf("%s\n", text);
  }
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

// Lines of "program | pattern of cases | reason"; a pattern of subcases begins with "subcase: ".
void leave_out(doctest::Context& context, const std::string& program) {
  const char* path = std::getenv("HVD_TEST_LEAVES_OUT");
  if (path == nullptr) return;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(" | ");
    const size_t second = line.rfind(" | ");
    if (first == second || line.substr(0, first) != program) continue;
    const std::string pattern = line.substr(first + 3, second - first - 3);
    if (pattern.starts_with(kSubcase)) {
      context.addFilter("subcase-exclude", pattern.c_str() + std::strlen(kSubcase));
    } else {
      context.addFilter("test-case-exclude", pattern.c_str());
    }
  }
}

}  // namespace

REGISTER_LISTENER("skips", 1, SkipListener);

int main(int argc, char** argv) {
  // Flushes a thread's output, even when the thread's exception ends the program.
  std::set_terminate([] {
    std::cout.flush();
    std::abort();
  });
  doctest::Context context(argc, argv);
  leave_out(context, std::filesystem::path(argv[0]).filename());
  const int result = context.run();
  if (context.shouldExit()) return result;
  return result == 0 && any_skipped ? kSkipped : result;
}
