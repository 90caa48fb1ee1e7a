#include "launcher/protocol/package_list.h"

#include <doctest/doctest.h>

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::vector<PackageFile> files() {
  return {{.path = "python/horovod/a name.py", .size = 3, .digest = sha256(as_bytes("abc"))},
          {.path = "lib/x.so", .mode = 0755, .size = 0, .digest = sha256({})}};
}

}  // namespace

TEST_CASE("a list of files is read as it was written, and its name follows from its content") {
  const std::string list = format_package_list(files());
  const auto read = parse_package_list(list);
  REQUIRE(read.ok());
  CHECK(*read == files());
  CHECK(size_of_package(*read) == 3);
  CHECK(package_name(list).size() == 32);
  CHECK(package_name(list) != package_name(list + "\n"));
  CHECK(parse_package_list("")->empty());
}

TEST_CASE("a list that names no files of the package is refused") {
  const std::string line = format_package_list({files()[1]});
  const auto with = [&](std::string_view what, const std::string& by) {
    std::string changed = line;
    changed.replace(changed.find(what), what.size(), by);
    return parse_package_list(changed).ok();
  };
  CHECK(with("lib/x.so", "lib/y.so"));
  for (const char* path : {"/lib/x.so", "../x.so", "lib/../../x.so", "lib//x.so", "./x.so", ""}) {
    CAPTURE(path);
    CHECK_FALSE(with("lib/x.so", path));
  }
  CHECK_FALSE(with(" 755 ", " 4755 "));
  CHECK_FALSE(with(" 0 ", " -1 "));
  CHECK_FALSE(with(" 0 ", " 9999999999 "));
  CHECK(parse_package_list(format_package_list({{.path = "x", .size = 5ull << 30}}), 5ull << 30)
            .ok());
  CHECK_FALSE(parse_package_list(format_package_list(files()), 2).ok());
  CHECK_FALSE(with("e3b0", "e3b"));
  CHECK_FALSE(with("e3b0", "e3bx"));
  CHECK_FALSE(with("\n", ""));
}
