#include "launcher/protocol/package_list.h"

#include <algorithm>
#include <numeric>

#include "base/secrets/secret.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kNameDigits = 32;
constexpr int64_t kProgram = 755;
constexpr int64_t kData = 644;

bool is_inside_package(std::string_view path) {
  const std::vector<std::string> words = split(path, '/');
  return std::ranges::none_of(
      words, [](const std::string& word) { return word.empty() || word == "." || word == ".."; });
}

Result<PackageFile> parse_line(const std::string& line, uint64_t most) {
  const std::vector<std::string> words = split(line, ' ');
  const Status wrong = invalid_argument(
      cat("the list of the package has a line that is none: '", printable(line), "'"));
  if (words.size() < 4) return wrong;
  const auto digest = from_hex(words[0]);
  const auto size = parse_int(words[1]);
  const auto mode = parse_int(words[2]);
  PackageFile file;
  file.path = line.substr(words[0].size() + words[1].size() + words[2].size() + 3);
  if (!digest.ok() || digest->size() != file.digest.size() || !is_inside_package(file.path))
    return wrong;
  if (!size || *size < 0 || static_cast<uint64_t>(*size) > most) return wrong;
  if (mode != kProgram && mode != kData) return wrong;
  file.size = static_cast<uint64_t>(*size);
  file.mode = mode == kProgram ? 0755 : 0644;
  std::ranges::copy(*digest, file.digest.begin());
  return file;
}

}  // namespace

std::string format_package_list(const std::vector<PackageFile>& files) {
  std::string text;
  for (const PackageFile& file : files) {
    const bool is_program = (file.mode & 0100) != 0;
    text += cat(to_hex(file.digest), " ", file.size, " ", is_program ? kProgram : kData, " ",
                file.path, "\n");
  }
  return text;
}

Result<std::vector<PackageFile>> parse_package_list(std::string_view text, uint64_t most) {
  std::vector<PackageFile> files;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return invalid_argument("the list of the package ends within a line");
    }
    HVD_ASSIGN_OR_RETURN(PackageFile file, parse_line(std::string(text.substr(0, end)), most));
    files.push_back(std::move(file));
    text.remove_prefix(end + 1);
  }
  if (size_of_package(files) > most) {
    return invalid_argument(cat("the files of the package have more than ", most >> 30, " GiB"));
  }
  return files;
}

std::string package_name(std::string_view list) {
  return to_hex(sha256(as_bytes(list))).substr(0, kNameDigits);
}

uint64_t size_of_package(const std::vector<PackageFile>& files) {
  return std::accumulate(files.begin(), files.end(), uint64_t{0},
                         [](uint64_t sum, const PackageFile& file) { return sum + file.size; });
}

}  // namespace hvd::launcher
