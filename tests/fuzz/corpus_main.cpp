// Runs a fuzz target over the files of a corpus, and over every truncation of each, as a plain test:
// launcher_fuzz_corpora hostfile tests/fuzz/corpus/hostfile
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace {

using Target = int (*)(const uint8_t* data, size_t size);

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

}  // namespace

FuzzTarget::FuzzTarget(const char* name, Target run) { targets()[name] = run; }

int main(int argc, char** argv) {
  const auto target = targets().find(argc > 1 ? argv[1] : "");
  if (target == targets().end()) {
    std::fprintf(stderr, "usage: %s TARGET CORPUS...\n", argv[0]);
    for (const auto& [name, run] : targets()) std::fprintf(stderr, "  %s\n", name.c_str());
    return 2;
  }
  size_t files = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
      for (size_t size = 0; size < bytes.size(); ++size) {
        // An exact-size copy, so that sanitizers find a read past the end.
        const std::vector<uint8_t> cut(data, data + size);
        target->second(cut.data(), cut.size());
      }
      target->second(data, bytes.size());
      ++files;
    }
  }
  if (files == 0) {
    std::fprintf(stderr, "no corpus files found\n");
    return 1;
  }
  std::printf("%zu corpus files\n", files);
  return 0;
}
