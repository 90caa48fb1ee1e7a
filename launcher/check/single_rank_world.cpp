#include "launcher/check/single_rank_world.h"

#include <type_traits>

#include "base/shared_library.h"
#include "base/text.h"
#include "horovod/horovod.h"

namespace hvd::launcher {
namespace {

// The functions of libhorovod.so that the tests call.
struct Library {
  decltype(&hvd_init) init;
  decltype(&hvd_shutdown) shutdown;
  decltype(&hvd_submit) submit;
  decltype(&hvd_wait) wait;
  decltype(&hvd_release) release;
  decltype(&hvd_capability) capability;

  // Opens the library at `path`. Returns the reason of a failure; empty on success.
  std::string open(const std::string& path);
};

std::string Library::open(const std::string& path) {
  auto library = SharedLibrary::open(path);
  if (!library.ok()) return library.status().message();
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library->symbol(name));
    return function != nullptr;
  };
  const bool found = find("hvd_init", init) && find("hvd_shutdown", shutdown) &&
                     find("hvd_submit", submit) && find("hvd_wait", wait) &&
                     find("hvd_release", release) && find("hvd_capability", capability);
  return found ? "" : cat(path, " is not a libhorovod.so of this version");
}

std::string try_allreduce(const Library& library, const ProbeMemory& memory, char* error,
                          size_t error_size) {
  const int64_t shape[] = {1};
  float own[] = {42, 0};
  float* numbers = memory.take ? memory.take() : own;
  if (numbers == nullptr) return "the device gives no memory";
  numbers[0] = 42;
  float& input = numbers[0];
  float& output = numbers[1];
  hvd_tensor tensor{};
  tensor.dtype = HVD_FLOAT32;
  tensor.ndim = 1;
  tensor.shape = shape;
  tensor.input = &input;
  tensor.output = &output;
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = "check-build";
  submission.device = memory.device;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  hvd_handle handle = 0;
  if (library.submit(&submission, &handle, error, error_size) != HVD_OK) return error;
  if (library.wait(handle, kProbeSeconds, error, error_size) != HVD_OK) return error;
  if (library.release(handle, error, error_size) != HVD_OK) return error;
  return output == input ? "" : cat("the sum over one rank of ", input, " was ", output);
}

}  // namespace

std::string try_single_rank_world(const std::string& path, bool with_sum,
                                  const ProbeMemory& memory) {
  Library library;
  if (std::string why = library.open(path); !why.empty()) return why;
  char error[512] = "";
  if (library.init(nullptr, error, sizeof error) != HVD_OK) return error;
  if (with_sum) {
    if (std::string why = try_allreduce(library, memory, error, sizeof error); !why.empty())
      return why;
  }
  return library.shutdown(error, sizeof error) == HVD_OK ? "" : error;
}

std::string ask_capability(const std::string& path, const std::string& name) {
  Library library;
  if (std::string why = library.open(path); !why.empty()) return why;
  char why[512] = "";
  if (library.capability(name.c_str(), why, sizeof why) == 1) return {};
  return why[0] != '\0' ? why : "this build has no plugin for it";
}

}  // namespace hvd::launcher
