#include "launcher/check/init.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/check/first_config.h"
#include "launcher/check/hosts.h"
#include "launcher/cli/options.h"
#include "launcher/output/report.h"
#include "launcher/plan/text_file.h"

namespace hvd::launcher {
namespace {

constexpr const char* kFile = "horovodrun.yaml";

int show_known_hosts() {
  const std::string path = environment_variable("HOME").value_or("/") + "/.ssh/config";
  std::vector<std::string> names;
  if (::access(path.c_str(), F_OK) == 0) {
    const auto text = read_text_file(path, "the configuration of ssh");
    if (!text.ok()) return refuse(text.status());
    names = names_in_ssh_config(*text);
  }
  std::string text = names.empty() ? cat(path, " names no hosts.\n")
                                   : cat("Hosts in ", path, ": ", printable(join(names, ", ")),
                                         "\nNone of them was contacted.\n");
  return print_answer(cat(text, "Name the hosts of your jobs, as in: horovodrun init ",
                          names.empty() ? "localhost" : printable(names.front()), "\n"));
}

// Returns the only Python script of the current directory, or else the name that the documentation uses.
std::string find_script() {
  std::vector<std::string> scripts;
  std::error_code error;
  for (std::filesystem::directory_iterator at(".", error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".py") scripts.push_back(at->path().filename().string());
  }
  return scripts.size() == 1 ? scripts.front() : "train.py";
}

// Prints a line for each host. Returns the exit code.
int test_hosts(const Options& options) {
  const auto hosts = ask_hosts(options);
  if (!hosts.ok()) return refuse(hosts.status());
  std::vector<std::string> silent, without_python;
  std::string text;
  for (const HostCheck& host : *hosts) {
    text += cat(host.host, ": ", host_summary(host), "\n");
    if (!host.rows.ok())
      silent.push_back(host.host);
    else if (!has_python(host))
      without_python.push_back(host.host);
  }
  const std::vector<std::string> differing = differing_software(*hosts);
  if (!silent.empty()) {
    text += cat("not ready: ", join(silent, ", "), "; fix that, then: horovodrun --config-file ",
                kFile, " --check-build\n");
  } else if (!without_python.empty()) {
    text += cat("not ready: no python3 on ", join(without_python, ", "),
                "; install it there, or let `remote_init` in ", kFile, " put one on PATH\n");
  } else if (!differing.empty()) {
    text += cat("not ready: the hosts differ in ", join(differing, ", "),
                "; install the same version on all hosts\n");
  } else {
    const bool is_here = hosts->size() == 1 && hosts->front().host == "localhost";
    text += cat(is_here ? "" : "Without a shared disk, add --stage . to the command.\n",
                "ready: horovodrun --config-file ", kFile, " python3 ", shell_quote(find_script()),
                "\n");
  }
  const int printed = print_answer(text);
  const bool is_ready = silent.empty() && without_python.empty() && differing.empty();
  return is_ready ? printed : kExitLauncher;
}

}  // namespace

void notify_of_unread_config(const Options& options) {
  if (options.settings.table().is_set("config_file") || ::access(kFile, F_OK) != 0) return;
  print_message(cat(kFile, " in this directory is not read; --config-file ", kFile, " reads it"));
}

bool asks_for_config(std::span<const std::string> arguments) {
  return !arguments.empty() && arguments[0] == "init";
}

int make_config(std::span<const std::string> arguments) {
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (words.empty()) return show_known_hosts();
  for (const std::string& word : words) {
    if (!word.starts_with('-')) continue;
    return refuse(invalid_argument(cat("init takes hosts alone, as in: horovodrun init a:4 b:4; ",
                                       printable(word), " belongs into ", kFile)));
  }
  const std::string list = join(words, ",");
  const auto options = parse_options(std::vector<std::string>{"--check-build", "-H", list});
  if (!options.ok()) return refuse(options.status());
  if (const auto hosts = choose_hosts(options->settings); !hosts.ok())
    return refuse(hosts.status());
  const Status written = create_text_file(kFile, "the config file", first_config(list), 0644);
  if (!written.ok()) return refuse(written);
  print_message(cat("wrote ", kFile));
  return test_hosts(*options);
}

}  // namespace hvd::launcher
