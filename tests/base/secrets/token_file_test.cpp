#include <doctest/doctest.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd {
namespace {

const std::string kToken = "00112233445566778899aabbccddeeff";
constexpr uid_t kNobody = 65534;

// A private folder that other users may enter.
struct Folder {
  Folder() {
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    ::chmod(path.c_str(), 0755);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& content, mode_t mode) const {
    const std::string name = path + "/token";
    std::ofstream(name) << content;
    ::chmod(name.c_str(), mode);
    return name;
  }
  std::string path = (std::filesystem::temp_directory_path() / "horovod-token-XXXXXX").string();
};

Result<Secret> read_file(const std::string& path) { return read_token(path, {}); }

std::string complaint(const std::string& content, mode_t mode) {
  const Folder folder;
  return read_file(folder.file(content, mode)).status().message();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Returns whether a process of this user and group can read the token. Needs root.
bool is_read_by(uid_t user, gid_t group, const std::string& path) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setgroups(1, &group) != 0 || ::setgid(kNobody) != 0 || ::setuid(user) != 0) ::_exit(3);
    const auto secret = read_file(path);
    ::_exit(secret.ok() && secret->hex() == kToken ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Returns the read end of a pipe with the text; also the write end if `writer` is not null.
UniqueFd pipe_with(std::string_view text, UniqueFd* writer = nullptr) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd output(ends[1]);
  CHECK(::write(output.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  if (writer != nullptr) *writer = std::move(output);
  return UniqueFd(ends[0]);
}

}  // namespace

TEST_CASE("a token file that only its owner reads gives the secret") {
  const Folder folder;
  const auto secret = read_file(folder.file(kToken + "\n", 0600));
  REQUIRE_MESSAGE(secret.ok(), secret.status().message());
  CHECK(secret->hex() == kToken);
}

TEST_CASE("a bad token file gets a sentence with the fix and without the token") {
  CHECK(has(complaint(kToken, 0644), "is open to others (mode 0644); run: chmod 600"));
  CHECK(has(complaint("", 0600), "is empty; make one with"));
  CHECK(has(complaint(" \n", 0600), "is empty"));
  CHECK(has(complaint("abcd", 0600), "fewer than 32"));
  CHECK(has(complaint(std::string(5000, 'a'), 0600), "holds more than"));
  const std::string odd = complaint("correct horse battery staple correct horse", 0600);
  CHECK(has(odd, "hexadecimal digits"));
  CHECK_FALSE(has(odd, "horse"));
  CHECK(has(read_file("/no/such/file").status().message(), "No such file"));
  CHECK(has(read_file("/no/such/file").status().message(), "; make one with"));
  CHECK(has(read_file("/tmp").status().message(), "not a regular file"));
  const Folder folder;
  REQUIRE(::mkfifo((folder.path + "/fifo").c_str(), 0600) == 0);
  CHECK(has(read_file(folder.path + "/fifo").status().message(), "not a regular file"));
}

TEST_CASE("a token file of root's is read through its group, by the links of a Kubernetes volume") {
  if (::geteuid() != 0) {
    MESSAGE("SKIP: only root makes files for others");
    return;
  }
  constexpr gid_t kGroup = 4711;
  const Folder folder;
  const std::string file = folder.file(kToken, 0440);
  REQUIRE(::chown(file.c_str(), 0, kGroup) == 0);
  std::filesystem::create_directory(folder.path + "/..2024");
  std::filesystem::rename(file, folder.path + "/..2024/token");
  std::filesystem::create_symlink("..2024", folder.path + "/..data");
  std::filesystem::create_symlink("..data/token", file);
  CHECK(is_read_by(kNobody, kGroup, file));
  CHECK(is_read_by(0, kGroup, file));
  CHECK_FALSE(is_read_by(kNobody, kNobody, file));
  // Members of a group with write access can choose the token.
  ::chmod(file.c_str(), 0460);
  CHECK_FALSE(is_read_by(kNobody, kGroup, file));
  CHECK(has(read_file(file).status().message(), "defaultMode: 0440"));
  ::chmod(file.c_str(), 0444);
  CHECK_FALSE(is_read_by(kNobody, kGroup, file));
  // A file of another user is refused too.
  ::chmod(file.c_str(), 0400);
  REQUIRE(::chown(file.c_str(), kNobody, kGroup) == 0);
  CHECK(is_read_by(kNobody, kGroup, file));
  CHECK(has(read_file(file).status().message(), "belongs to user 65534"));
  ::chmod(file.c_str(), 0440);
  CHECK_FALSE(is_read_by(kNobody, kGroup, file));
}

TEST_CASE("an anonymous pipe is read to its end") {
  UniqueFd whole = pipe_with(kToken + "\n");
  const auto secret = read_token("", whole.release());
  REQUIRE_MESSAGE(secret.ok(), secret.status().message());
  CHECK(secret->hex() == kToken);

  // A pipe of a shell's process substitution, written in two parts.
  UniqueFd writer;
  const UniqueFd parts = pipe_with(kToken.substr(0, 20), &writer);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::poll(nullptr, 0, 50);
    ::_exit(::write(writer.get(), kToken.data() + 20, kToken.size() - 20) > 0 ? 0 : 1);
  }
  writer.reset();
  const auto from_path = read_token(cat("/dev/fd/", parts.get()), {});
  ::waitpid(pid, nullptr, 0);
  REQUIRE_MESSAGE(from_path.ok(), from_path.status().message());
  CHECK(from_path->hex() == kToken);
}

TEST_CASE("a pipe whose writer does not close it is given up") {
  UniqueFd writer;
  UniqueFd reader = pipe_with(kToken, &writer);
  const auto secret = read_token("", reader.release(), Deadline::after_seconds(0.05));
  CHECK(has(secret.status().message(), "close each copy of its write end"));
}

TEST_CASE("a token comes from one place") {
  CHECK(has(read_token("", {}).status().message(), "give one of them"));
  CHECK(has(read_token("token", 3).status().message(), "give one of them"));
  CHECK(has(read_token("", 987).status().message(), "token descriptor 987"));
}

TEST_CASE("a token file is created for its owner alone, where nobody else can write") {
  const Folder folder;
  const std::string path = folder.path + "/new";
  const Status created = create_token_file(path);
  REQUIRE_MESSAGE(created.ok(), created.message());
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  const auto secret = read_file(path);
  REQUIRE(secret.ok());
  CHECK(secret->hex().size() == 64);
  CHECK(has(create_token_file(path).message(), "File exists"));
  std::filesystem::create_symlink(folder.path + "/nowhere", folder.path + "/link");
  CHECK(has(create_token_file(folder.path + "/link").message(), "File exists"));
  CHECK(has(create_token_file(folder.path + "/none/token").message(), "No such file"));
  ::chmod(folder.path.c_str(), 01777);
  const std::string refusal = create_token_file(folder.path + "/another").message();
  CHECK(has(refusal, "other users can write to its directory"));
  CHECK(has(refusal, "mode 0777"));
  CHECK_FALSE(std::filesystem::exists(folder.path + "/another"));
}

}  // namespace hvd
