#include "launcher/plan/environment_choice.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace hvd::launcher {
namespace {

const Environment kInherited = {{"PATH", "/bin"}, {"HOME", "/root"},      {"NCCL_DEBUG", "INFO"},
                                {"FI_X", "1"},    {"SSH_AUTH_SOCK", "s"}, {"UCX_TLS", "tcp"},
                                {"PMI_RANK", "3"}};

Environment chosen(const EnvironmentChoice& choice, bool is_local = false) {
  Environment environment = chosen_environment(kInherited, {}, choice, is_local);
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

TEST_CASE("a name that is not set is reported") {
  CHECK(unset_names(kInherited, choice_of({"NONE", "NO*", "PATH", "A=1"})) ==
        std::vector<std::string>{"NONE"});
}

TEST_CASE("a value wins over another flag's, and that over what is inherited") {
  const auto choice = choice_of({"B=choice"}, true);
  CHECK(chosen_environment({{"A", "here"}, {"B", "here"}}, {{"A", "flag"}, {"B", "flag"}}, choice,
                           true) == Environment{{"A", "flag"}, {"B", "choice"}});
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
