#include "plugins/nccl/double_process.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "base/mutex.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {
namespace {

constexpr int kDevices = 32;
constexpr int kNotInitialised = 3, kNotPermitted = 800;

std::atomic<int> process{0};  // PID of the process that initialised CUDA, or 0
std::atomic<int> visible{kDevices};
std::atomic<bool> has_failed{false};
thread_local bool is_in_host_function = false;
thread_local int last_error = 0;

struct Contexts {
  Mutex mutex;
  std::set<int> devices HVD_GUARDED_BY(mutex);
};
Contexts& contexts() {
  static auto* const all = new Contexts;
  return *all;
}

bool initialise() {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list != nullptr) {
    const std::string text = list;
    const auto commas = std::count(text.begin(), text.end(), ',');
    visible.store(text.empty() ? 0 : static_cast<int>(commas) + 1);
  }
  process.store(::getpid());
  return true;
}

}  // namespace

int begin_call(const char* function) {
  static const bool is_initialised = initialise();
  static_cast<void>(is_initialised);
  if (is_in_host_function) {
    report(kHostFunction, std::string("a host function calls ") + function);
    return remember(kNotPermitted);
  }
  if (process.load() != ::getpid()) return remember(kNotInitialised);
  return has_failed.load() ? remember(kIllegalAddress) : 0;
}

int remember(int error) { return last_error = error; }

int count_devices() {
  return std::min(static_cast<int>(variable("HVD_DOUBLE_DEVICES", kDevices)), visible.load());
}

int number_on_host(int device) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return device;
  std::istringstream text(list);
  std::string item;
  for (int i = 0; std::getline(text, item, ','); ++i) {
    if (i == device) return std::atoi(item.c_str());
  }
  return device;
}

bool is_excluded(int device) { return variable("HVD_DOUBLE_EXCLUDED", -1) == device; }

void use_device(int device) {
  Contexts& all = contexts();
  const MutexLock lock(all.mutex);
  const int first = all.devices.empty() ? device : *all.devices.begin();
  if (!all.devices.insert(device).second || first == device) return;
  report(kOneContext, "the process makes a context on device " + std::to_string(device) +
                          " beside that on device " + std::to_string(first));
}

void fail_kernel() { has_failed.store(true); }
bool has_kernel_failed() { return has_failed.load(); }

HostFunction::HostFunction() { is_in_host_function = true; }
HostFunction::~HostFunction() { is_in_host_function = false; }

}  // namespace hvd::test_double

#pragma GCC visibility push(default)
extern "C" {

int cudaGetLastError() {
  const int last = hvd::test_double::last_error;
  hvd::test_double::last_error = 0;
  return last;
}
// Returns whether a call has initialised CUDA in this process.
int hvd_double_is_initialised() { return hvd::test_double::process.load() != 0 ? 1 : 0; }

}  // extern "C"
#pragma GCC visibility pop
