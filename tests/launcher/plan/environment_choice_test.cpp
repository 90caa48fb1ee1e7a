#include "launcher/plan/environment_choice.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

const Environment kInherited = {{"PATH", "/bin"}, {"HOME", "/root"},      {"NCCL_DEBUG", "INFO"},
                                {"FI_X", "1"},    {"SSH_AUTH_SOCK", "s"}, {"UCX_TLS", "tcp"},
                                {"PMI_RANK", "3"}};

constexpr char kHashSeed[] = "PYTHONHASHSEED";

// Removes the random seed of Python's hashes.
Environment without_seed(Environment environment) {
  CHECK(!value_of(environment, kHashSeed).empty());
  std::erase_if(environment, [](const auto& variable) { return variable.first == kHashSeed; });
  return environment;
}

Environment chosen(const EnvironmentChoice& choice, bool is_local = false) {
  Environment environment = without_seed(chosen_environment(kInherited, {}, choice, is_local));
  std::sort(environment.begin(), environment.end());
  return environment;
}

EnvironmentChoice choice_of(std::initializer_list<std::string_view> words, bool no_env = false) {
  Settings settings;
  if (no_env) REQUIRE(settings.set("no_env", "1").ok());
  for (const std::string_view word : words) REQUIRE(settings.set("env", word).ok());
  const auto choice = read_environment_choice(LaunchSettings(settings));
  REQUIRE_MESSAGE(choice.ok(), choice.status().message());
  return *choice;
}

std::string error_of(std::string_view word) {
  Settings settings;
  REQUIRE(settings.set("env", word).ok());
  return read_environment_choice(LaunchSettings(settings)).status().message();
}

}  // namespace

TEST_CASE("all goes but what is this machine's or another launcher's") {
  CHECK(chosen({}) ==
        Environment{{"FI_X", "1"}, {"NCCL_DEBUG", "INFO"}, {"PATH", "/bin"}, {"UCX_TLS", "tcp"}});
}

TEST_CASE("nothing goes but what is named") {
  CHECK(chosen(choice_of({}, true)).empty());
  CHECK(chosen(choice_of({"NCCL_*", "A=1", "B="}, true)) ==
        Environment{{"A", "1"}, {"B", ""}, {"NCCL_DEBUG", "INFO"}});
}

TEST_CASE("a name goes also when it would not by itself, a pattern takes no such one") {
  CHECK(chosen(choice_of({"HOME", "SSH_*"}, true)) == Environment{{"HOME", "/root"}});
  CHECK(chosen(choice_of({"*"}, true)) == chosen({}));
}

TEST_CASE("a value wins over what is inherited, the last one of a name") {
  CHECK(chosen(choice_of({"FI_X=2", "FI_X=3", "N=a=b"}, true)) ==
        Environment{{"FI_X", "3"}, {"N", "a=b"}});
}

TEST_CASE("a name after a value is that of the launcher's environment, if it has one") {
  CHECK(chosen(choice_of({"PATH=/file", "FI_X=file", "PATH"}, true)) ==
        Environment{{"FI_X", "file"}, {"PATH", "/bin"}});
  CHECK(chosen(choice_of({"NCCL_DEBUG=file", "NCCL_ALGO=file", "NCCL_*"}, true)) ==
        Environment{{"NCCL_ALGO", "file"}, {"NCCL_DEBUG", "INFO"}});
  CHECK(chosen(choice_of({"PATH=/file", "PATH", "PATH=/flag"}, true)) ==
        Environment{{"PATH", "/flag"}});
  const auto unset = choice_of({"NONE=file", "NONE"});
  CHECK(unset_names(kInherited, unset).empty());
  CHECK(without_seed(chosen_environment({}, {}, unset, true)) == Environment{{"NONE", "file"}});
}

TEST_CASE("a name that is not set is reported") {
  CHECK(unset_names(kInherited, choice_of({"NONE", "NO*", "PATH", "A=1"})) ==
        std::vector<std::string>{"NONE"});
}

TEST_CASE("a value wins over another flag's, and that over what is inherited") {
  const auto choice = choice_of({"B=choice"}, true);
  CHECK(without_seed(chosen_environment({{"A", "here"}, {"B", "here"}},
                                        {{"A", "flag"}, {"B", "flag"}}, choice, true)) ==
        Environment{{"A", "flag"}, {"B", "choice"}});
}

TEST_CASE("all hosts get one seed of Python's hashes where the user gives none") {
  const auto seed_of = [](const Environment& inherited, bool is_local) {
    return std::string(
        value_of(chosen_environment(inherited, {}, EnvironmentChoice{}, is_local), kHashSeed));
  };
  const std::string drawn = seed_of({}, true);
  CHECK(std::stoull(drawn) >= 1);
  CHECK(std::stoull(drawn) <= 4294967295);
  CHECK(drawn == seed_of({}, false));
  CHECK(drawn == seed_of({{kHashSeed, ""}}, true));
  for (const char* own : {"0", "7", "random"}) CHECK(seed_of({{kHashSeed, own}}, false) == own);
}

TEST_CASE("a word that is no name is refused") {
  CHECK(error_of("=1") == "-x: '' is neither the name of a variable nor a pattern such as NAME*");
  CHECK(error_of("A*B") ==
        "-x: 'A*B' is neither the name of a variable nor a pattern such as NAME*");
  CHECK(error_of("A*=1") == "-x: 'A*=1' is not NAME=VALUE");
}

TEST_CASE("a file of variables") {
  EnvironmentChoice choice;
  CHECK(
      parse_env_file("# ours\nA=1\r\n\n  export B = \"two words\" \nC='it'\nD=\nPATH\nA=2\nE=a#b\n",
                     "f", choice)
          .ok());
  CHECK(choice.values ==
        Environment{{"A", "2"}, {"B", "two words"}, {"C", "it"}, {"D", ""}, {"E", "a#b"}});
  CHECK(choice.names == std::vector<std::string>{"PATH"});
  for (const char* text :
       {"A=1\nB secret\n", "A=1\nB C=secret\n", "A=1\n=secret\n", "A=1\nA*=secret\n"}) {
    CHECK(parse_env_file(text, "f", choice).message() ==
          "env file f, line 2 is neither NAME=VALUE, NAME, a pattern such as NAME* nor a comment; "
          "correct it (its text is not shown, since it may be a secret)");
  }
}

TEST_CASE("variables that the launcher sets for each rank are named") {
  const auto choice = choice_of({"HOROVOD_RANK=1", "A=1", "MASTER_ADDR", "HOROVOD_*"});
  CHECK(ineffective_names(choice, true) == std::vector<std::string>{"MASTER_ADDR", "HOROVOD_RANK"});
  CHECK(ineffective_names(choice, false) == std::vector<std::string>{"HOROVOD_RANK"});
}

}  // namespace hvd::launcher
