// Ranks as processes that a launcher has started. They exchange keys through a shared folder, one
// file for each key. plugin_world.h uses it.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace hvd::test {

class SharedFolder {
 public:
  explicit SharedFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
  }
  // Writes a file atomically: writes another file and renames it.
  void set(const std::string& key, const std::string& value) const {
    const std::filesystem::path file = file_of(key);
    const std::filesystem::path aside = file.string() + "~";
    std::ofstream(aside, std::ios::binary) << value;
    std::filesystem::rename(aside, file);
  }
  bool has(const std::string& key) const { return std::filesystem::exists(file_of(key)); }
  std::optional<std::string> get(const std::string& key, double seconds) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!has(key)) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(file_of(key), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::filesystem::path file_of(std::string key) const {
    for (char& letter : key) {
      if (letter == '/') letter = '+';
    }
    return path_ / key;
  }
  const std::filesystem::path path_;
};

// Finds this process's rank in the variables of its launcher.
struct ProcessWorld {
  int rank = variable_number({"HVD_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0);
  int size = variable_number({"HVD_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
  bool real_hosts = std::getenv("HVD_WORLD_HOSTS") != nullptr;
  int worlds = 0;
  bool aborted = false;                     // a world was aborted
  std::vector<std::shared_ptr<void>> kept;  // kept until the process ends

  // Every world has a new folder; all processes make the same worlds in the same order.
  SharedFolder next() {
    const char* folder = std::getenv("HVD_WORLD_FOLDER");
    return SharedFolder(std::filesystem::path(folder == nullptr ? "." : folder) /
                        std::to_string(worlds++));
  }

  static int variable_number(std::initializer_list<const char*> names, int otherwise) {
    for (const char* name : names) {
      if (const char* value = std::getenv(name)) return std::atoi(value);
    }
    return otherwise;
  }
};

}  // namespace hvd::test
