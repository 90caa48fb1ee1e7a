#include "launcher/agent/preflight/package_copy.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "launcher/protocol/package_list.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

struct Source {
  std::string list, content;
  PackageOffer offer;
};

Source source() {
  Source made;
  std::vector<PackageFile> files;
  for (const auto& [path, text] :
       {std::pair("python/horovod/__init__.py", "x = 1\n"), std::pair("lib/libhorovod.so.1", "ELF"),
        std::pair("python/horovod/py.typed", "")}) {
    files.push_back(
        {.path = path, .size = std::string_view(text).size(), .digest = sha256(as_bytes(text))});
    made.content += text;
  }
  made.list = format_package_list(files);
  made.offer.name = package_name(made.list);
  made.offer.size = made.content.size();
  return made;
}

class Host {
 public:
  Host() {
    char path[] = "/tmp/package-copy-XXXXXX";
    folder_ = ::mkdtemp(path);
  }
  ~Host() { fs::remove_all(folder_); }
  const std::string& folder() const { return folder_; }
  std::vector<std::string> folders() const { return {folder_}; }
  std::string copy() const { return cat(folder_, "/horovod-package-", source().offer.name); }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  bool finds() const { return PackageCopy().find(source().offer, folders()); }

 private:
  std::string folder_;
};

// Sends the files as a launcher does; returns the first error.
Status send(PackageCopy& copy, const std::string& list, const std::string& content) {
  Digest digest{};
  for (const auto& [name, text] : {std::pair("list", list), std::pair("packed", content)}) {
    const StagePart part{StageKind::kFile, 0600, name, text};
    digest = next_digest(digest, part);
    HVD_RETURN_IF_ERROR(copy.take(part));
  }
  CHECK(copy.is_incomplete());
  return copy.take({StageKind::kEnd, 0, "", std::string(as_text(digest))});
}

Status deliver(const Host& host) {
  PackageCopy copy;
  HVD_RETURN_IF_ERROR(copy.expect(source().offer, host.folders()));
  HVD_RETURN_IF_ERROR(send(copy, source().list, source().content));
  CHECK_FALSE(copy.unpacking(""));
  return copy.install();
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a package that was sent is found by later jobs") {
  const Host host;
  CHECK_FALSE(host.finds());
  PackageCopy copy;
  REQUIRE(copy.expect(source().offer, host.folders()).ok());
  CHECK_FALSE(host.finds());
  REQUIRE(send(copy, source().list, source().content).ok());
  CHECK_FALSE(copy.is_incomplete());
  CHECK_FALSE(host.finds());
  REQUIRE(copy.install().ok());
  CHECK(copy.python_folder() == host.copy() + "/python");
  CHECK(text_of(host.copy() + "/python/horovod/__init__.py") == "x = 1\n");
  CHECK(text_of(host.copy() + "/lib/libhorovod.so.1") == "ELF");
  CHECK(host.entries() == 1);
  CHECK(host.finds());
}

TEST_CASE("a package in use has a shared lock") {
  const Host host;
  REQUIRE(deliver(host).ok());
  const UniqueFd folder(::open(host.copy().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  {
    PackageCopy copy;
    REQUIRE(copy.find(source().offer, host.folders()));
    CHECK(::flock(folder.get(), LOCK_EX | LOCK_NB) != 0);
    CHECK(host.finds());
  }
  CHECK(::flock(folder.get(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("a damaged package that a job uses is not replaced below it") {
  const Host host;
  REQUIRE(deliver(host).ok());
  const std::string file = host.copy() + "/python/horovod/__init__.py";
  PackageCopy late;  // this copy chose its folder before the other job began
  REQUIRE(late.expect(source().offer, host.folders()).ok());
  {
    PackageCopy used;
    REQUIRE(used.find(source().offer, host.folders()));
    std::ofstream(file) << "x = 2\n";
    const std::string refusal =
        cat(host.copy(), " is damaged, and a running job uses it: end that job first");
    CHECK(deliver(host).message().find(refusal) != std::string::npos);
    REQUIRE(send(late, source().list, source().content).ok());
    CHECK(late.install().message() == refusal);
    CHECK(text_of(file) == "x = 2\n");
    // The new copy goes into another folder.
    const Host other;
    PackageCopy copy;
    CHECK(copy.expect(source().offer, {host.folder(), other.folder()}).ok());
    CHECK(copy.folder() == other.copy());
  }
  CHECK(deliver(host).ok());
  CHECK(text_of(file) == "x = 1\n");
}

TEST_CASE("a package that gzip has packed is unpacked by a command in its folder") {
  const Host host;
  const std::string packed =
      host.folder() + "/../" + fs::path(host.folder()).filename().string() + ".gz";
  std::ofstream(packed + ".raw", std::ios::binary) << source().content;
  REQUIRE(std::system(cat("gzip -1 <", packed, ".raw >", packed).c_str()) == 0);
  PackageCopy copy;
  REQUIRE(copy.expect(source().offer, host.folders()).ok());
  REQUIRE(send(copy, source().list, text_of(packed)).ok());
  for (const std::string& file : {packed, packed + ".raw"}) fs::remove(file);
  const auto command = copy.unpacking("python3");
  REQUIRE(command);
  CHECK(command->path == "/bin/sh");
  const std::string shell = cat("cd ", command->working_directory, " && /bin/sh -c ",
                                shell_quote(command->arguments[2]), " sh python3");
  REQUIRE(std::system(shell.c_str()) == 0);
  CHECK(copy.install().ok());
  CHECK(host.finds());
}

TEST_CASE("a package that differs from its list is not used, and another one replaces it") {
  const Host host;
  const std::string file = host.copy() + "/python/horovod/__init__.py";
  const auto change = [&](int how) {
    switch (how) {
      case 0:
        std::ofstream(file) << "x = 2\n";
        return;
      case 1:
        fs::remove(file);
        return;
      case 2:
        std::ofstream(host.copy() + "/python/torch.py") << "\n";
        return;
      case 3:
        REQUIRE(::chmod(file.c_str(), 0666) == 0);
        return;
      case 4:
        REQUIRE(::chmod(host.copy().c_str(), 0777) == 0);
        return;
      case 5:
        std::ofstream(host.copy() + "/list", std::ios::app) << "\n";
        return;
      case 6:
        fs::rename(file, host.folder() + "/moved");
        fs::create_symlink(host.folder() + "/moved", file);
        return;
      default:
        fs::remove_all(host.copy());
        fs::create_directory_symlink("/tmp", host.copy());
    }
  };
  for (int how = 0; how < 8; ++how) {
    CAPTURE(how);
    REQUIRE(deliver(host).ok());
    REQUIRE(host.finds());
    change(how);
    CHECK_FALSE(host.finds());
  }
  REQUIRE(deliver(host).ok());
  CHECK(host.finds());
}

TEST_CASE("a package of another user is not used") {
  if (::geteuid() != 0) return;
  const Host host;
  for (const char* part : {"", "/python/horovod", "/python/horovod/__init__.py"}) {
    CAPTURE(part);
    REQUIRE(deliver(host).ok());
    REQUIRE(::chown((host.copy() + part).c_str(), 12345, 12345) == 0);
    CHECK_FALSE(host.finds());
  }
  REQUIRE(::chown(host.folder().c_str(), 12345, 12345) == 0);
  const Status refused = deliver(host);
  CHECK(refused.message().find(" belongs to another user or is writable by others") !=
        std::string::npos);
  CHECK(refused.message().ends_with("name one by HOROVOD_AGENT_DIR, or install horovod there"));
}

TEST_CASE("bytecode that Python adds is written again in each job") {
  const Host host;
  REQUIRE(deliver(host).ok());
  const std::string cache = host.copy() + "/python/horovod/__pycache__";
  fs::create_directory(cache);
  std::ofstream(cache + "/__init__.cpython-311.pyc") << "x";
  CHECK(host.finds());
  CHECK_FALSE(fs::exists(cache));
  fs::create_directory(cache);
  std::ofstream(cache + "/other.so") << "x";
  CHECK(host.finds());
  CHECK_FALSE(fs::exists(cache));
}

TEST_CASE("the parts must have the hashes of the list, or leave nothing behind") {
  const Host host;
  const Source good = source();
  std::string changed = good.content;
  changed[0] = 'y';
  for (const auto& [list, content] :
       {std::pair(good.list, changed), std::pair(good.list, good.content + "x"),
        std::pair(good.list + "\n", good.content)}) {
    PackageCopy copy;
    REQUIRE(copy.expect(good.offer, host.folders()).ok());
    REQUIRE(send(copy, list, content).ok());
    CHECK_FALSE(copy.install().ok());
  }
  {
    PackageCopy copy;  // the link of this copy breaks
    REQUIRE(copy.expect(good.offer, host.folders()).ok());
    REQUIRE(copy.take({StageKind::kFile, 0600, "list", good.list}).ok());
    CHECK(copy.is_incomplete());
  }
  CHECK(host.entries() == 0);
}

TEST_CASE("the first folder that can keep a package gets it") {
  const Host host;
  const std::string shared = host.folder() + "/shared";
  fs::create_directory(shared);
  REQUIRE(::chmod(shared.c_str(), 0777) == 0);
  PackageCopy copy;
  REQUIRE(copy.expect(source().offer, {shared, host.folder() + "/made"}).ok());
  REQUIRE(send(copy, source().list, source().content).ok());
  REQUIRE(copy.install().ok());
  CHECK(copy.python_folder().starts_with(host.folder() + "/made/"));
  PackageCopy none;
  CHECK(none.expect(source().offer, {shared, "/proc/none"})
            .message()
            .starts_with(cat(
                "no directory there can keep this horovodrun's package (", shared,
                " belongs to another user or is writable by others; /proc/none cannot be made")));
}

TEST_CASE("an unfinished copy of a killed agent goes with the next use of a whole one") {
  const Host host;
  REQUIRE(deliver(host).ok());
  const std::string left = host.folder() + "/horovod-copying-0123456789abcdef";
  const std::string young = host.folder() + "/horovod-copying-fedcba9876543210";
  for (const std::string& each : {left, young}) fs::create_directory(each);
  const timespec changed{.tv_sec = ::time(nullptr) - 120, .tv_nsec = 0};
  const timespec times[2] = {changed, changed};
  REQUIRE(::utimensat(AT_FDCWD, left.c_str(), times, 0) == 0);
  CHECK(host.finds());
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(young));
}

TEST_CASE("packages that no job has used for a month go") {
  const Host host;
  const std::string old = host.folder() + "/horovod-package-old";
  const std::string used = host.folder() + "/horovod-package-used";
  const timespec changed{.tv_sec = ::time(nullptr) - 31 * 24 * 3600, .tv_nsec = 0};
  const timespec times[2] = {changed, changed};
  for (const std::string& each : {old, used}) {
    fs::create_directory(each);
    REQUIRE(::utimensat(AT_FDCWD, each.c_str(), times, 0) == 0);
  }
  const UniqueFd lock(::open(used.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(lock.get(), LOCK_SH) == 0);
  REQUIRE(deliver(host).ok());
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(used));
}

}  // namespace hvd::launcher
