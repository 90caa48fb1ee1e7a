// The timeline's file: a JSON array that is valid at any time, even after SIGKILL, which may interrupt a
// write of several pages between two pages. TraceWriter owns the file. One thread.
//
// The file grows by pages of spaces after the closing bracket. Events replace the bracket within one
// page, by one write, which is atomic. A store of two bytes into the mapped file moves the bracket to
// the next page.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::runtime {

class TraceFile {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kLongestEvent = kPage - 8;

  // Creates or truncates the file, with an empty array.
  static Result<TraceFile> create(const std::string& path);
  TraceFile(TraceFile&&) = default;

  // Appends a value to the array; flush() writes it to the file. The first failure is kept.
  void append(std::string_view value);
  Status flush();
  // Flushes, and removes the spaces at the end.
  Status finish();

 private:
  explicit TraceFile(UniqueFd fd, std::string path);
  Status write(uint64_t offset, std::string_view bytes);
  Status cross();
  void fail(Status status);

  UniqueFd fd_;
  std::string path_;
  Status failure_;
  uint64_t base_ = 0;               // file offset of the page that has the closing bracket
  std::array<char, kPage> page_{};  // next content of this page; spaces after used_
  size_t used_ = 0;                 // offset of the bracket in page_
  size_t written_ = 0;              // offset of the bracket in the file's page
  bool empty_ = true;
};

}  // namespace hvd::runtime
