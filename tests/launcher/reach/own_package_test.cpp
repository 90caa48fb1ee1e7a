#include "launcher/reach/own_package.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "horovod/version.h"
#include "launcher/protocol/package_list.h"

namespace fs = std::filesystem;

namespace hvd::launcher {
namespace {

class PackageTree {
 public:
  PackageTree() {
    char name[] = "/tmp/own-package-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root_ = fs::canonical(name);
  }
  ~PackageTree() { fs::remove_all(root_); }
  PackageTree(const PackageTree&) = delete;

  void write(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      fs::create_directories((root_ / name).parent_path());
      std::ofstream(root_ / name) << name;
    }
  }
  OwnPackage read(bool has_program = false) const {
    fs::create_directories(root_ / "bin");
    const auto package = read_own_package((root_ / "bin").string(), has_program);
    REQUIRE(package.ok());
    return *package ? **package : OwnPackage{};
  }

 private:
  fs::path root_;
};

std::vector<std::string> paths_of(const OwnPackage& package) {
  std::vector<std::string> paths;
  const auto files = parse_package_list(package.list);
  REQUIRE(files.ok());
  for (const PackageFile& file : *files) paths.push_back(file.path);
  return paths;
}

const std::vector<std::string> kBuildLayout = {
    "python/horovod/__init__.py", "python/horovod/torch/_ops.so", "lib/libhorovod.so.1",
    "lib/horovod/ops/libgloo.so", "bin/horovodrun"};

}  // namespace

TEST_CASE("the package of a build is laid out as the build, without its caches") {
  const PackageTree tree;
  tree.write(kBuildLayout);
  tree.write({"python/horovod/__pycache__/x.pyc", "lib/horovod/ops/libgloo.a", "lib/other.so"});
  CHECK(paths_of(tree.read(true)) == kBuildLayout);
  CHECK(tree.read(true).offer.program == "bin/horovodrun");
  CHECK(tree.read().files.size() == 4);
}

TEST_CASE(
    "the package of a wheel is laid out as a build, in which its own horovodrun finds the "
    "library") {
  const PackageTree tree;
  tree.write({"site/horovod/__init__.py", "site/horovod/torch/_ops.so",
              "site/horovod/libhorovod.so", "site/horovod/horovod/ops/libgloo.so",
              "bin/horovodrun"});
  CHECK(paths_of(tree.read(true)) == kBuildLayout);
}

TEST_CASE("the backend of torch.distributed goes along, with its entry point") {
  const std::string info = cat("horovod_torch_backend-", HVD_VERSION, ".dist-info/");
  const std::vector<std::string> expected = {"python/horovod_torch_backend.py",
                                             cat("python/", info, "METADATA"),
                                             cat("python/", info, "entry_points.txt")};
  const PackageTree build;
  build.write(kBuildLayout);
  build.write(expected);
  auto paths = paths_of(build.read());
  std::erase_if(paths,
                [](const std::string& path) { return !path.starts_with("python/horovod_"); });
  CHECK(paths == expected);
}

TEST_CASE("a launcher without a package or without a library offers none") {
  const PackageTree tree;
  tree.write({"python/horovod/__init__.py", "bin/horovodrun"});
  CHECK(tree.read().offer.name.empty());
}

}  // namespace hvd::launcher
