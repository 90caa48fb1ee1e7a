#include "ops/nccl/library.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"

namespace hvd::ops::nccl {
namespace {

// The oldest version with ncclSend, ncclRecv and ncclAvg: NCCL 2.10.
constexpr int kLeastVersion = 21000;

// Names of the communication library and of its runtime for the dynamic linker, the usual name first.
struct Family {
  const char* name;
  std::vector<std::string> libraries, runtimes;
  const char* prefix;   // prefix of the runtime's functions: "cuda" or "hip"
  const char* package;  // packages with these libraries
};
const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies{
      {"NCCL",
       {"libnccl.so.2", "libnccl.so"},
       {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"},
       "cuda",
       "NVIDIA's libnccl2, or the NCCL that PyTorch brings: import it first"},
      {"RCCL",
       {"librccl.so.1", "librccl.so"},
       {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
       "hip",
       "ROCm's rccl"}};
  return kFamilies;
}

// Finds libraries of any version that are already loaded, since this backend must not load a second one. PyTorch's
// packages for ROCm have "librccl.so" and "libamdhip64.so", without a version.
std::vector<std::string> loaded_of(const std::vector<std::string>& names) {
  const std::string_view name = names.front();
  return loaded_libraries(name.substr(0, name.find(".so") + 3));
}

// Finds a PyTorch that links NCCL statically (PyPI's before 2.0): with libnccl, the process would have two NCCLs.
std::string torch_with_nccl() {
  for (const std::string& path : loaded_libraries("libtorch_cuda.so")) {
    const auto library = SharedLibrary::open(path);
    if (library.ok() && library->symbol("ncclGetVersion") != nullptr) return path;
  }
  return {};
}

std::string find_loaded(const std::vector<std::string>& names) {
  const auto loaded = loaded_of(names);
  if (!loaded.empty()) return loaded.front();
  return names.front().starts_with("libnccl") ? torch_with_nccl() : std::string();
}

Result<SharedLibrary> open_first(const std::vector<std::string>& names, const char* variable) {
  const std::string wanted(trim(environment_variable(variable).value_or("")));
  if (!wanted.empty()) return SharedLibrary::open(wanted);
  const std::string loaded = find_loaded(names);
  if (!loaded.empty()) return SharedLibrary::open(loaded);
  Status refusal;
  for (const std::string& name : names) {
    auto library = SharedLibrary::open(name);
    if (library.ok()) return library;
    if (refusal.ok()) refusal = library.error();
  }
  return refusal;
}

Status check_functions(const SymbolFinder& find) {
  if (find.missing().empty()) return {};
  return not_found(
      cat(find.library().path(), " has no function ", find.missing(), ": it is too old"));
}

Result<NcclApi> open_family(const Family& family) {
  HVD_ASSIGN_OR_RETURN(const SharedLibrary nccl,
                       open_first(family.libraries, "HOROVOD_NCCL_LIBRARY"));
  HVD_ASSIGN_OR_RETURN(const SharedLibrary runtime,
                       open_first(family.runtimes, "HOROVOD_CUDA_LIBRARY"));
  NcclApi api{{SymbolFinder(nccl, "nccl")},
              {SymbolFinder(runtime, family.prefix), family.prefix == std::string_view("cuda")},
              family.name};
  HVD_RETURN_IF_ERROR(check_functions(api.NcclFunctions::find));
  HVD_RETURN_IF_ERROR(check_functions(api.RuntimeFunctions::find));
  HVD_RETURN_IF_ERROR(api.of_nccl(api.get_version(&api.version), "ncclGetVersion"));
  if (api.version < kLeastVersion) {
    return failed_precondition(cat(api.library, " is ", api.title(),
                                   "; 2.10 is the oldest that "
                                   "works"));
  }
  return api;
}

// Returns the remedy for a CUDA error, or an empty text. HIP has the same error numbers.
const char* remedy_of(int error) {
  switch (error) {
    case 2:  // MemoryAllocation
      return "; its memory is full: let the program leave some free, by a smaller batch or "
             "torch.cuda.empty_cache()";
    case 46:  // DevicesUnavailable
      return "; another process may use the GPU in an exclusive compute mode: nvidia-smi -c 0 lets "
             "several use it, and one rank for each GPU needs no other mode";
    case 214:  // ECCUncorrectable
    case 700:  // IllegalAddress
    case 719:  // LaunchFailure
    case 999:  // Unknown
      return "; a kernel of this process, or the GPU, has failed: look for Xid in dmesg, and end "
             "the "
             "process";
    default:
      return "";
  }
}

}  // namespace

std::string NcclApi::uuid_of(int device) const {
  std::array<std::byte, abi::kUuidSize> uuid{};
  if (device_get_uuid != nullptr) {
    if (device_get_uuid(uuid.data(), device) != 0) return {};
  } else if (get_device_properties != nullptr) {
    const auto properties = std::make_unique<std::byte[]>(abi::kPropertiesSize);
    if (get_device_properties(properties.get(), device) != 0) return {};
    std::copy_n(properties.get() + abi::kUuidOffset, uuid.size(), uuid.data());
  }
  const bool is_known =
      std::any_of(uuid.begin(), uuid.end(), [](std::byte one) { return one != std::byte{0}; });
  return is_known ? to_hex(uuid) : std::string();
}

std::string NcclApi::bus_of(int device) const {
  char text[64] = "";
  if (device_get_pci_bus_id == nullptr) return {};
  return device_get_pci_bus_id(text, sizeof text, device) == 0 ? text : "";
}

Result<NcclApi> open_api() {
  const std::string wanted = environment_variable("HOROVOD_NCCL_LIBRARY").value_or("");
  const Family& nccl = families()[0];
  const Family& rccl = families()[1];
  if (!wanted.empty()) {
    return open_family(wanted.find("rccl") == std::string::npos ? nccl : rccl);
  }
  const bool has_rccl = !loaded_of(rccl.libraries).empty();
  if (has_rccl && loaded_of(nccl.libraries).empty()) return open_family(rccl);
  auto api = open_family(nccl);
  if (api.ok()) return api;
  auto other = open_family(rccl);
  if (other.ok() || has_rccl) return other;
  return api.error().with_context(cat("NCCL cannot be used (", nccl.package,
                                      "; HOROVOD_NCCL_LIBRARY and HOROVOD_CUDA_LIBRARY may name "
                                      "the libraries)"));
}

std::string NcclApi::title() const {
  // Before 2.9, the minor version had one digit instead of two.
  const int major = version >= 10000 ? version / 10000 : version / 1000;
  const int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
  return cat(family, " ", major, ".", minor, ".", version % 100);
}

Status NcclApi::of_nccl(int result, const char* what, abi::Comm* comm) const {
  if (result == abi::kSuccess || result == abi::kInProgress) return {};
  const char* detail = get_last_error == nullptr ? nullptr : get_last_error(comm);
  std::string text = cat(family, ": ", what, ": ", get_error_string(result));
  if (detail != nullptr && *detail != '\0') text += cat(" (", detail, ")");
  for (char& character : text) {
    if (character == '\n') character = ' ';
  }
  return aborted(std::move(text));
}

Status NcclApi::of_device(int error, const char* what) const {
  if (error == 0) return {};
  return unavailable(cat(runtime, ": ", what, ": ", error_string(error), remedy_of(error)));
}

}  // namespace hvd::ops::nccl
