// A rank of oneCCL, whose library is opened at run time. Ranks find each other through a folder.
//
//   ccl_worker SOCKET RANK SIZE FOLDER LIBRARY
#include <dlfcn.h>

#include <fstream>
#include <iterator>

#include "ops/ccl/abi.h"
#include "worker.h"

namespace abi = hvd::ops::ccl::abi;

namespace {

class Folder : public abi::KvsInterface {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::vector<char> get(const abi::String& key) override {
    std::ifstream file(name_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Renames a complete draft, so that readers never see a part.
  void set(const abi::String& key, const std::vector<char>& data) override {
    const std::string name = name_of(key);
    const std::string draft = name + "." + std::to_string(::getpid());
    std::ofstream(draft, std::ios::binary).write(data.data(), static_cast<long>(data.size()));
    if (std::rename(draft.c_str(), name.c_str()) != 0) throw std::runtime_error(name);
  }
  int get_id() override { return 0; }

 private:
  std::string name_of(const abi::String& key) const {
    std::string name(key.text, key.length);
    std::replace(name.begin(), name.end(), '/', '_');
    return path_ + "/kvs-" + name;
  }
  const std::string path_;
};

void* symbol(void* library, const char* name) {
  void* found = ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(::dlerror());
  return found;
}

template <typename Function>
Function* function(void* library, const char* name) {
  return reinterpret_cast<Function*>(symbol(library, name));
}

const abi::Attribute& defaults(void* library, const char* name) {
  return *static_cast<const abi::Attribute*>(symbol(library, name));
}

// Sets the same variables as the plugin.
void tell(const std::string& rank, const std::string& size) {
  const std::pair<const char*, std::string> variables[] = {
      {"CCL_PROCESS_LAUNCHER", "none"},
      {"CCL_LOCAL_RANK", rank},
      {"CCL_LOCAL_SIZE", size},
      {"CCL_ATL_TRANSPORT", "ofi"},
      {"CCL_OFI_LIBRARY_PATH", "libfabric.so.1"},
      {"CCL_WORKER_OFFLOAD", "0"},
      {"CCL_LOG_LEVEL", "error"}};
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 0);
}

}  // namespace

int main(int, char** argv) {
  const int rank = std::atoi(argv[2]);
  const int size = std::atoi(argv[3]);
  tell(argv[2], argv[3]);
  void* library = ::dlopen(argv[5], RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  function<abi::Init>(library, abi::kInit)(defaults(library, abi::kInitDefault));
  const auto communicator = function<abi::CreateCommunicator>(library, abi::kCreateCommunicator)(
      size, rank, std::make_shared<Folder>(argv[4]), defaults(library, abi::kCommunicatorDefault));
  const auto& attribute = defaults(library, abi::kAllReduceDefault);
  auto* all_reduce = function<abi::AllReduce>(library, abi::kAllReduce);
  auto* wait = function<void(abi::Event*)>(library, "_ZN3ccl2v15event4waitEv");
  auto* drop = function<abi::DestroyEvent>(library, abi::kDestroyEvent);
  const auto allreduce = [&](float* data, size_t count) {
    abi::Event event =
        all_reduce(data, data, count, abi::kFloat32, abi::kSum, communicator, attribute, {});
    wait(&event);
    drop(&event);
  };
  bench::serve(argv[1], rank, {{"allreduce", [&](const bench::Words& words) {
                                  const size_t bytes = std::stoull(words.at(0));
                                  std::vector<float> data(bytes / sizeof(float));
                                  return std::vector<double>{bench::time_allreduce(
                                      data.data(), bytes, std::stoi(words.at(1)), size, allreduce)};
                                }}});
  // oneCCL's destructors wait for peers that may have ended already.
  std::_Exit(0);
}
