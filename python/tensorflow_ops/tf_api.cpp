#include "tf_api.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::tensorflow {

namespace {

// Stores the path of the library of Python's TensorFlow, which contains the C API in 2.8 and older.
int find_internal(dl_phdr_info* info, size_t, void* found) {
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (!path.ends_with("/_pywrap_tensorflow_internal.so")) return 0;
  static_cast<std::string*>(found)->assign(path);
  return 1;
}

const TfApi& found() {
  static const TfApi api;
  return api;
}

// The address ranges of code of TensorFlow's libraries: [begin, end) each.
using Ranges = std::vector<std::pair<uintptr_t, uintptr_t>>;

int add_ranges(dl_phdr_info* info, size_t, void* ranges) {
  if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "tensorflow") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    static_cast<Ranges*>(ranges)->emplace_back(begin, begin + segment.p_memsz);
  }
  return 0;
}

Ranges ranges_of_tensorflow() {
  Ranges ranges;
  dl_iterate_phdr(&add_ranges, &ranges);
  return ranges;
}

bool lies_in(const Ranges& ranges, uintptr_t address) {
  for (const auto& [begin, end] : ranges) {
    if (address >= begin && address < end) return true;
  }
  return false;
}

// Returns whether the address is in TensorFlow's code. dladdr is too slow: it reads all symbols on each call.
bool is_tensorflow(const void* pointer) {
  static const Ranges at_first = ranges_of_tensorflow();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return lies_in(at_first, address) || lies_in(ranges_of_tensorflow(), address);
}

}  // namespace

TfSymbols::TfSymbols() {
  for (void*& library : libraries_) library = nullptr;
  const char* names[] = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"};
  for (int i = 0; i < 2; ++i) libraries_[i] = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
  std::string internal;  // a library without soname
  dl_iterate_phdr(&find_internal, &internal);
  if (!internal.empty()) libraries_[2] = dlopen(internal.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

TfSymbols::Symbol TfSymbols::operator()(const char* name) {
  // async_kernels.cpp defines the functions that this TensorFlow lacks.
  void* found = dlsym(RTLD_DEFAULT, (std::string("horovod_") + name).c_str());
  for (void* library : libraries_) {
    if (library != nullptr && found == nullptr) found = dlsym(library, name);
  }
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && missing_ == nullptr) missing_ = name;
  return {found};
}

std::function<void()> keep(const Done* done) {
  // The layout in libstdc++, which TensorFlow uses: two words of the callee; the function that copies and destroys the
  // callee; the function that calls it.
  const void* words[4];
  static_assert(sizeof words == sizeof(std::function<void()>));
  std::memcpy(words, static_cast<const void*>(done), sizeof words);
  if (!is_tensorflow(words[2]) || !is_tensorflow(words[3])) return {};
  return *reinterpret_cast<const std::function<void()>*>(done);
}

const TfApi* tf_api() { return missing_function() == nullptr ? &found() : nullptr; }

const char* missing_function() { return found().find.missing(); }

}  // namespace hvd::tensorflow
