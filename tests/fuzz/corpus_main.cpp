// Runs a fuzz target over the files of a corpus, and over every cut of each, as a plain test.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
      for (size_t size = 0; size < bytes.size(); ++size) {
        // A copy of exactly that size, so that a read past the end is seen by the sanitizers.
        const std::vector<uint8_t> cut(data, data + size);
        LLVMFuzzerTestOneInput(cut.data(), cut.size());
      }
      LLVMFuzzerTestOneInput(data, bytes.size());
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
