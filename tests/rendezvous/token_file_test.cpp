#include "rendezvous/token_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hvd::rendezvous {
namespace {

struct TokenFile {
  TokenFile(const std::string& content, mode_t mode)
      : path(std::filesystem::temp_directory_path() /
             ("horovod-token-test-" + std::to_string(::getpid()))) {
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
  }
  ~TokenFile() { ::unlink(path.c_str()); }
  std::string path;
};

const std::string kToken = "00112233445566778899aabbccddeeff";

std::string complaint(const std::string& content, mode_t mode) {
  const TokenFile file(content, mode);
  return read_token_file(file.path).status().message();
}

}  // namespace

TEST_CASE("a token file that only its owner reads gives the secret") {
  const TokenFile file(kToken + "\n", 0600);
  const auto secret = read_token_file(file.path);
  REQUIRE_MESSAGE(secret.ok(), secret.status().message());
  CHECK(secret->hex() == kToken);
}

TEST_CASE("a bad token file gets a sentence with the fix and without the token") {
  CHECK(complaint(kToken, 0640).find("chmod 600") != std::string::npos);
  CHECK(complaint("", 0600).find("is empty; make one with") != std::string::npos);
  CHECK(complaint(" \n", 0600).find("is empty") != std::string::npos);
  CHECK(complaint("abcd", 0600).find("fewer than 32") != std::string::npos);
  const std::string odd = complaint("correct horse battery staple correct horse", 0600);
  CHECK(odd.find("hexadecimal digits") != std::string::npos);
  CHECK(odd.find("horse") == std::string::npos);
  CHECK(read_token_file("/no/such/file").status().message().find("No such file") !=
        std::string::npos);
  CHECK(read_token_file("/tmp").status().message().find("not a regular file") !=
        std::string::npos);
}

}  // namespace hvd::rendezvous
