// One rank of random_process_test: plays random programs by the C ABI, several per start. usage:
// program_worker FIRST_SEED COUNT. Prints a digest of the expected errors, which is equal on all
// ranks; complaints go to standard error. Exits with 0, or with 1 after a complaint.
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/text.h"
#include "horovod/horovod.h"
#include "runtime/player.h"

namespace {

class CAbi final : public hvd::test::RankApi {
 public:
  int submit(const hvd_submission& submission, hvd_handle* handle, std::string* error) override {
    return told(hvd_submit(&submission, handle, buffer(), kSize), error);
  }
  int poll(hvd_handle handle, bool* done, std::string* error) override {
    int32_t is_done = 0;
    const int code = told(hvd_poll(handle, &is_done, buffer(), kSize), error);
    *done = is_done != 0;
    return code;
  }
  int wait(hvd_handle handle, double seconds, std::string* error) override {
    return told(hvd_wait(handle, seconds, buffer(), kSize), error);
  }
  int output(hvd_handle handle, uint32_t index, hvd_output* output, std::string* error) override {
    return told(hvd_get_output(handle, index, output, buffer(), kSize), error);
  }
  int release(hvd_handle handle, std::string* error) override {
    return told(hvd_release(handle, buffer(), kSize), error);
  }
  int add_set(const std::vector<int32_t>& ranks, hvd_handle* handle, std::string* error) override {
    return told(hvd_add_process_set(ranks.data(), static_cast<uint32_t>(ranks.size()), handle,
                                    buffer(), kSize),
                error);
  }
  int remove_set(int32_t set, hvd_handle* handle, std::string* error) override {
    return told(hvd_remove_process_set(set, handle, buffer(), kSize), error);
  }

 private:
  static constexpr size_t kSize = 1024;
  static char* buffer() {
    thread_local char text[kSize];
    return text;
  }
  static int told(int code, std::string* error) {
    if (code != HVD_OK) *error = buffer();
    return code;
  }
};

// Returns true if a program had no complaints.
bool play_one(unsigned seed, hvd::test::Report* report, std::string* sentences) {
  const auto program = hvd::test::make_program(seed, hvd_size(), hvd::test::everything());
  CAbi api;
  hvd::test::play(program, hvd_rank(), api, {}, report);
  for (const auto& [step, sentence] : report->sentences) {
    *sentences += hvd::cat(seed, " ", step, ": ", sentence, "\n");
  }
  for (const std::string& complaint : report->complaints) {
    std::fprintf(stderr, "%s\n", complaint.c_str());
  }
  if (report->complaints.empty()) return true;
  std::fprintf(stderr, "%s", describe(program).c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto first = static_cast<unsigned>(std::atoi(argv[1]));
  const auto count = static_cast<unsigned>(std::atoi(argv[2]));
  char error[1024] = "";
  std::deque<hvd::test::Report> reports;
  std::string sentences;
  int result = hvd_init(nullptr, error, sizeof error);
  for (unsigned i = 0; result == HVD_OK && i < count; ++i) {
    if (!play_one(first + i, &reports.emplace_back(), &sentences)) result = HVD_INTERNAL;
  }
  std::printf("digest %zx\n", std::hash<std::string>()(sentences));
  if (hvd_shutdown(error, sizeof error) != HVD_OK) result = HVD_INTERNAL;
  if (error[0] != '\0') std::fprintf(stderr, "%s\n", error);
  return result == HVD_OK ? 0 : 1;
}
