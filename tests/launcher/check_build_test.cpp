#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "horovod/version.h"
#include "launcher/check/first_config.h"
#include "launcher/check/format.h"
#include "launcher/check/probe.h"
#include "launcher/check/remedy.h"
#include "launcher/cli/config_file.h"

namespace hvd::launcher {
namespace {

CheckTable small_table() {
  return {{"Available Frameworks", "TensorFlow", false, "not there", "", "", "get it"},
          {"Available Frameworks", "PyTorch", true, "", "2.13.0", "/torch"},
          {"Available Tensor Operations", "MPI", false, "no"},
          {"Available Tensor Operations", "Gloo", true},
          {"Also Looked For", "TCP", true, "", "", "", "", true}};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the layout is the one that scripts search") {
  CHECK(format_check(small_table(), false) == "Horovod v" HVD_VERSION
                                              ":\n"
                                              "\n"
                                              "Available Frameworks:\n"
                                              "    [ ] TensorFlow\n"
                                              "    [X] PyTorch\n"
                                              "\n"
                                              "Available Tensor Operations:\n"
                                              "    [ ] MPI\n"
                                              "    [X] Gloo    \n");
}

TEST_CASE("verbose rows say what was found, why not, and what would help") {
  const std::string text = format_check(small_table(), true);
  CHECK(contains(text, "    [ ] TensorFlow: not there\n            fix: get it\n"));
  CHECK(contains(text, "    [X] PyTorch: 2.13.0, /torch\n"));
  CHECK(contains(text, "\nAlso Looked For:\n    [X] TCP\n"));
}

TEST_CASE("rows survive their way through JSON") {
  const auto rows = check_from_json(check_as_json(small_table()));
  REQUIRE(rows.ok());
  CHECK(format_check(*rows, true) == format_check(small_table(), true));
  for (const char* text : {"", "[]", "{\"rows\": 1}", "{\"rows\": [1]}", "\xff"}) {
    CHECK(!check_from_json(text).ok());
  }
}

TEST_CASE("hosts are compared row by row") {
  CheckTable other = small_table();
  other[1] = {"Available Frameworks", "PyTorch", true, "", "1.13.1", "/elsewhere"};
  other[3].works = false;
  other[3].why = "broken";
  const std::vector<HostCheck> alike = {{"a", small_table()}, {"b", small_table()}};
  CHECK(contains(compare_checks(alike, false), "\nThe hosts agree.\n"));
  const std::vector<HostCheck> mixed = {
      {"a", small_table()}, {"b", other}, {"c", unavailable("it gave no answer")}};
  const std::string text = compare_checks(mixed, false);
  CHECK(contains(text, " on a, b:\n"));
  CHECK(contains(text, "    [X] PyTorch: on a: 2.13.0; on b: 1.13.1\n"));
  CHECK(contains(text, "    [ ] Gloo: on a: works; on b: broken\n"));
  CHECK(
      contains(text, "\nThe hosts that answered differ in PyTorch, Gloo.\nc: it gave no answer\n"));
  CHECK(contains(compare_checks(mixed, true),
                 "    [ ] TensorFlow: not there\n            fix: get it\n"));
  CHECK(!contains(compare_checks(std::span(mixed).subspan(1), false), "agree"));
  CHECK(contains(comparison_as_json(mixed), "\"c\":{\"error\":\"it gave no answer\"}"));
}

TEST_CASE("the answer of a one-host job's rank counts, or else the reason why there is none") {
  const std::string sentence =
      R"({"source":"horovodrun","text":"host b: connect: nothing listens"})"
      "\n";
  nlohmann::json line = {{"rank", 0}, {"text", check_as_json(small_table())}};
  const auto rows = check_from_job("b", cat(sentence, line.dump(), "\n"));
  REQUIRE(rows.ok());
  CHECK(rows->size() == small_table().size());
  CHECK(check_from_job("b", sentence).status().message() == "connect: nothing listens");
  CHECK(check_from_job("b", cat(sentence, R"({"rank":0,"text":"horovodrun: no"})"))
            .status()
            .message() == "connect: nothing listens; no");
  CHECK(check_from_job("b", "no object\n").status().message() == "it gave no answer");
}

TEST_CASE("a requirement is named like a row, and all rows of a name count") {
  CheckTable rows = small_table();
  CHECK(check_required("pytorch, Gloo", rows).ok());
  CHECK(contains(check_required("PyTorch,MPI", rows).message(), "MPI (Available Tensor"));
  rows.push_back({"Available Controllers", "Gloo", false, "away"});
  CHECK(contains(check_required("Gloo", rows).message(), "away"));
  CHECK(check_required("Torch", rows).code() == Code::kInvalidArgument);
  CHECK(check_required("PyTorch,", rows).ok());
  CHECK(contains(check_required(" ,", rows).message(),
                 "--require names nothing; it takes some of: T"));
}

TEST_CASE("a remedy is a command for this kind of machine, or why there is none") {
  const Machine debian{.has_apt = true, .has_system_python = true};
  CHECK(remedy("PyTorch", true, debian) == "apt-get install python3-torch");
  CHECK(remedy("PyTorch", true, {}) == "python3 -m pip install torch");
  CHECK(contains(remedy("PyTorch", true, debian, "/home/me/torch.py"),
                 "move /home/me/torch.py away"));
  CHECK(remedy("PyTorch", true, debian, "/usr/lib/python3/dist-packages/torch/__init__.py") ==
        "apt-get install --reinstall python3-torch");
  CHECK(remedy("TensorFlow", true, debian,
               "/venv/lib/python3.11/site-packages/tensorflow/__init__.py") ==
        "python3 -m pip install --upgrade --force-reinstall tensorflow");
  CHECK(remedy("MXNet", false, debian) == "none: this version has no binding for MXNet");
  CHECK(remedy("MPI", true, debian) == "apt-get install libopenmpi3");
  CHECK(remedy("MPI", false, {.has_dnf = true, .is_built_tree = true, .build_folder = "/b"}) ==
        "dnf install openmpi-devel && cmake /b && cmake --build /b");
  CHECK(remedy("NCCL", true, debian) == "none: this machine has no GPU");
  CHECK(remedy("CUDA", true, {.has_apt = true, .has_nvidia = true}) ==
        "apt-get install nvidia-driver");
  CHECK(remedy("CCL", true, debian) == "none: oneCCL supports only x86-64");
  CHECK(contains(remedy("CCL", true, {.has_apt = true, .is_x86_64 = true}),
                 "apt-get install libfabric1 && python3 -m venv ccl && ccl/bin/pip install "));
}

TEST_CASE("a probe works, or says why not") {
  const auto outcome = [](std::function<std::string()> body, double seconds = 10) {
    return Probe(body).wait(Deadline::after_seconds(seconds));
  };
  CHECK(outcome([] { return ""; }).works);
  CHECK(outcome([] { return "no such thing"; }).why == "no such thing");
  CHECK(outcome([] {
          return become({"sh", "-c", "echo a >&2; echo 'the reason' >&2; exit 4"}, {});
        }).why == "the reason");
  CHECK(outcome([] {
          return become({"sh", "-c", "exit 4"}, {});
        }).why == "it ended with exit code 4");
  CHECK(outcome([] { return become({"sh", "-c", "test $X = 1"}, {{"X", "1"}}); }).works);
  CHECK(outcome([] { return become({"no-such-program-here"}, {}); }).why ==
        "cannot run no-such-program-here: No such file or directory");
  CHECK(outcome([]() -> std::string {
          ::raise(SIGKILL);
          return "";
        }).why == "it crashed by SIGKILL");
  CHECK(outcome(
            []() -> std::string {
              ::pause();
              return "";
            },
            0.1)
            .is_late);
}

TEST_CASE("a probe ends with its child, whoever else holds its pipe, and ends those too") {
  Probe probe([] { return become({"sh", "-c", "echo said >&2; sleep 3000 & echo $! >&2"}, {}); });
  const ProbeOutcome outcome = probe.wait(Deadline::after_seconds(200));
  CHECK(outcome.works);
  REQUIRE(outcome.output.starts_with("said\n"));
  const pid_t other = std::stoi(outcome.output.substr(5));
  // Wait until the orphan has ended; another process reaps its zombie.
  bool has_ended = false;
  for (const Deadline limit = Deadline::after_seconds(200); !has_ended && !limit.passed();) {
    std::string stat;
    std::getline(std::ifstream(cat("/proc/", other, "/stat")), stat);
    has_ended = stat.empty() || stat.find(") Z ") != std::string::npos;
  }
  CHECK(has_ended);
}

TEST_CASE("a first config file is one, with all comments too") {
  const std::string text = first_config("a:2,b:2");
  Settings settings;
  REQUIRE(apply_config(text, "horovodrun.yaml", settings).ok());
  CHECK(settings.text("hosts") == "a:2,b:2");
  CHECK_FALSE(settings.is_set("num_proc"));
  std::string all;
  int keys = 0;
  for (const std::string& line : split(text, '\n')) {
    const bool is_key = line.starts_with("# ") &&
                        line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", 2) == line.find(": ");
    keys += is_key ? 1 : 0;
    all += cat(is_key ? line.substr(2) : line, "\n");
  }
  CHECK(keys == 9);
  Settings every;
  const Status status = apply_config(all, "horovodrun.yaml", every);
  CHECK_MESSAGE(status.ok(), status.message());
  CHECK(every.text("network_interfaces") == "eth0");
}

TEST_CASE("hosts of a file of ssh are those that Host names") {
  CHECK(
      names_in_ssh_config(
          "Host a b\n  HostName 10.0.0.1\n\thost=\"c\" *.d !e a # f\nMatch host g\nHosts h\nHost\n"
          "Host ?\nHOST\tj\r\n") == std::vector<std::string>{"a", "b", "c", "j"});
  CHECK(names_in_ssh_config("").empty());
}

TEST_CASE("software that differs between hosts is named, and a host without an answer says why") {
  const auto with = [](const char* torch, bool works) {
    return CheckTable{{"Available Frameworks", "PyTorch", works, "no module", torch, "/torch"},
                      {"Available Tensor Operations", "MPI", works, "no"},
                      {kOtherRows, "Python", true, "", "3.11.2", "/usr/bin/python3"}};
  };
  const std::vector<HostCheck> alike = {{"a", with("2.13.0", true)}, {"b", with("2.13.0", true)}};
  CHECK(differing_software(alike).empty());
  CHECK(host_summary(alike[0]) == "Python 3.11.2 (/usr/bin/python3), PyTorch 2.13.0");
  const std::vector<HostCheck> others = {{"a", with("2.13.0", true)},
                                         {"b", with("1.13.1", true)},
                                         {"c", unavailable("it is switched off")}};
  CHECK(differing_software(others) ==
        std::vector<std::string>{"PyTorch (on a: 2.13.0; on b: 1.13.1)"});
  CHECK(host_summary(others[2]) == "it is switched off");
  CHECK(host_summary({"a", with("", false)}) == "Python 3.11.2 (/usr/bin/python3), no framework");
}

}  // namespace hvd::launcher
