// The timeline's file: a JSON array that is valid at every moment, even if SIGKILL ends this process.
// A SIGKILL may interrupt a write of several pages between two pages. TraceWriter owns it.
//
// How: the file grows by pages of spaces behind the closing bracket. Events replace the bracket
// within one page, by one write that the kernel does or does not do. The bracket crosses to the
// next page by one store of two bytes into the mapped file. Belongs to one thread.
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

  // Makes the file, or empties it: an array without elements.
  static Result<TraceFile> create(const std::string& path);
  TraceFile(TraceFile&&) = default;

  // A value of the array; it may be in the file only after flush. The first failure stays.
  void append(std::string_view value);
  Status flush();
  // Flushes, and cuts the spaces off the end.
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
  std::array<char, kPage> page_{};  // that page as it will be; behind used_ there are spaces
  size_t used_ = 0;                 // offset in page_ at which the bracket goes
  size_t written_ = 0;              // where it is in the file
  bool empty_ = true;
};

}  // namespace hvd::runtime
