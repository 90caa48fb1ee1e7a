// Adapts a Runtime of this process to the interface for programs.
#pragma once

#include "runtime/player.h"
#include "runtime/runtime.h"

namespace hvd::test {

class RuntimeApi final : public RankApi {
 public:
  explicit RuntimeApi(runtime::Runtime& runtime) : runtime_(runtime) {}

  int submit(const hvd_submission& submission, hvd_handle* handle, std::string* error) override {
    return told(runtime_.submit(submission, handle), error);
  }
  int poll(hvd_handle handle, bool* done, std::string* error) override {
    return told(runtime_.poll(handle, done), error);
  }
  int wait(hvd_handle handle, double seconds, std::string* error) override {
    const auto status = runtime_.wait(handle, Deadline::after_seconds(seconds));
    return status ? told(*status, error) : HVD_IN_PROGRESS;
  }
  int output(hvd_handle handle, uint32_t index, hvd_output* output, std::string* error) override {
    return told(runtime_.output(handle, index, output), error);
  }
  int release(hvd_handle handle, std::string* error) override {
    return told(runtime_.release(handle), error);
  }
  int add_set(const std::vector<int32_t>& ranks, hvd_handle* handle, std::string* error) override {
    return told(runtime_.add_process_set(ranks, handle), error);
  }
  int remove_set(int32_t set, hvd_handle* handle, std::string* error) override {
    return told(runtime_.remove_process_set(set, handle), error);
  }

 private:
  static int told(const Status& status, std::string* error) {
    if (!status.ok()) *error = status.message();
    return static_cast<int>(status.code());
  }
  runtime::Runtime& runtime_;
};

}  // namespace hvd::test
