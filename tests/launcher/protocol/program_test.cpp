#include "launcher/protocol/program.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

using namespace hvd::launcher;

namespace {

constexpr char kPath[] = "/usr/bin:/bin";

// A folder that is removed after the test.
struct Folder {
  Folder() { REQUIRE(::mkdtemp(name) != nullptr); }
  ~Folder() { ::unlink(file("train.py").c_str()), ::rmdir(name); }
  std::string file(const std::string& what) const { return std::string(name) + "/" + what; }
  std::string script(const std::string& text) const {
    std::ofstream(file("train.py")) << text;
    ::chmod(file("train.py").c_str(), 0755);
    return file("train.py");
  }
  char name[64] = "/tmp/program-test-XXXXXX";
};

std::string why(const std::string& program) {
  const auto found = find_program(program, "/", kPath);
  return found.ok() ? "" : found.error().message();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "A script whose first line ends in a carriage return is refused with the command that mends "
    "it") {
  const Folder folder;
  const std::string path = folder.script("#!/bin/sh\r\necho hello\r\n");
  const std::string said = why(path);
  CHECK_MESSAGE(has(said, "carriage return"), said);
  CHECK_MESSAGE(said.ends_with("sed -i 's/\\r$//' " + path), said);
  folder.script("#!/usr/bin/env sh\r\n");
  CHECK(has(why(path), "carriage return"));
  folder.script("#!/bin/sh\necho hello\r\n");
  CHECK(why(path).empty());
}

TEST_CASE("A variable in the program's place is answered with -x") {
  CHECK(has(why("OMP_NUM_THREADS=1"), "write -x OMP_NUM_THREADS=1 before the command"));
  CHECK(
      has(why("PYTHONPATH=/opt/my code"), "write -x 'PYTHONPATH=/opt/my code' before the command"));
  CHECK_FALSE(has(why("1=2"), "-x"));
  CHECK_FALSE(has(why("no-such=program"), "-x"));
}

TEST_CASE("A command in one pair of quotes is answered with their removal") {
  CHECK(has(why("/bin/sh train.sh"),
            "remove the quotes around it, so that '/bin/sh' is the program"));
  CHECK(has(why("sh train.sh"), "remove the quotes"));
  CHECK_FALSE(has(why("no-such-program train.sh"), "quotes"));
}

TEST_CASE("The Python of a command is itself, or its script's") {
  CHECK(is_python("/usr/bin/python3.11"));
  CHECK_FALSE(is_python("/usr/bin/pythonw"));
  const Folder folder;
  CHECK(python_of(folder.script("#!/opt/own/bin/python3 -u\n"), "/", kPath) ==
        "/opt/own/bin/python3");
  CHECK(python_of(folder.script("#!/bin/sh\n"), "/", kPath).empty());
  CHECK(python_of("/opt/python3", "/", kPath) == "/opt/python3");
}

TEST_CASE("A check of hosts names its Python after two dashes") {
  const auto named = [](std::vector<std::string> command) {
    const std::string* word = python_word(command);
    return word != nullptr ? *word : "";
  };
  CHECK(named({"python3.12", "train.py"}) == "python3.12");
  CHECK(named({"train.py", "--", "python3.12"}).empty());
  CHECK(named({"/bin/horovodrun", "--check-build", "--json", "--", "python3.12"}) == "python3.12");
  CHECK(named({"/bin/horovodrun", "--check-build", "--json", "--"}).empty());
  CHECK(named({"/bin/horovodrun", "--check-build", "--", "train.py"}).empty());
}

TEST_CASE("The options of a Python may stand in its script's first line") {
  const Folder folder;
  const auto options = [&](const std::string& text) {
    return options_of_interpreter(folder.script(text));
  };
  using Words = std::vector<std::string>;
  CHECK(options("#!/opt/own/bin/python3 -I\n") == Words{"-I"});
  CHECK(options("#! /opt/own/bin/python3\n").empty());
  CHECK(options("#!/usr/bin/env python3\n").empty());
  CHECK(options("print()\n").empty());
  const std::string divided = folder.script("#!/usr/bin/env -S sh -e -u\n");
  CHECK(options_of_interpreter(divided) == Words{"-e", "-u"});
  CHECK(interpreter_of(divided, "/", kPath).ends_with("/sh"));
}
