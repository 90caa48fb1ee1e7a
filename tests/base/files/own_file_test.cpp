#include "base/files/own_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

class OwnFolder {
 public:
  OwnFolder() {
    char path[] = "/tmp/own-file-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~OwnFolder() { fs::remove_all(path_); }
  std::string operator/(std::string_view name) const { return path_ / fs::path(name); }

 private:
  fs::path path_;
};

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("a file is made, emptied or continued") {
  const OwnFolder folder;
  const std::string path = folder / "file";
  for (const auto& [flags, expected] :
       {std::pair(O_TRUNC, "new"), std::pair(O_APPEND, "newnew"), std::pair(O_TRUNC, "new")}) {
    const auto file = open_own_file(path, flags);
    REQUIRE(file.ok());
    REQUIRE(::write(file->get(), "new", 3) == 3);
    CHECK(content(path) == expected);
  }
}

TEST_CASE("a link of this user is followed, and one of another user is not") {
  const OwnFolder folder;
  write(folder / "precious", "kept");
  fs::create_symlink("precious", folder / "link");
  CHECK(open_own_file(folder / "link", O_APPEND).ok());
  if (::geteuid() == 0) {  // only root can make a link of another user
    REQUIRE(::lchown((folder / "link").c_str(), 65534, 65534) == 0);
    CHECK(
        open_own_file(folder / "link", O_TRUNC).status().message() ==
        cat("cannot write to ", folder / "link",
            ": it is a symbolic link, which another user may have made; remove it, or name another "
            "place"));
  }
  CHECK(content(folder / "precious") == "kept");
  fs::create_directory(folder / "own");
  fs::create_symlink(folder / "own", folder / "linked");
  CHECK(open_own_folder(folder / "linked").status().code() == Code::kPermissionDenied);
  CHECK(open_own_folder(folder / "precious").status().message() ==
        cat("cannot write to ", folder / "precious", ": Not a directory"));
  CHECK(open_own_folder(folder / "made").ok());
}

TEST_CASE("a file or directory of another user is refused before it is emptied") {
  if (::geteuid() != 0) return;  // only root can change the owner
  const OwnFolder folder;
  write(folder / "theirs", "kept");
  fs::create_directory(folder / "rank.0");
  REQUIRE(::chown((folder / "theirs").c_str(), 65534, 65534) == 0);
  REQUIRE(::chown((folder / "rank.0").c_str(), 65534, 65534) == 0);
  CHECK(open_own_file(folder / "theirs", O_TRUNC).status().message() ==
        cat("cannot write to ", folder / "theirs",
            ": it belongs to another user, of uid 65534; name another place"));
  CHECK(content(folder / "theirs") == "kept");
  CHECK(open_own_folder(folder / "rank.0").status().code() == Code::kPermissionDenied);
}

TEST_CASE("a FIFO without a reader is an error") {
  const OwnFolder folder;
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(open_own_file(folder / "fifo", O_APPEND).status().message() ==
        cat("cannot write to ", folder / "fifo", ": No such device or address"));
}

}  // namespace hvd
