#include "launcher/output/rank_errors.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"
#include "launcher/output/traceback.h"

namespace hvd::launcher {
namespace {

constexpr size_t kLines = 10;

// Returns the quoted name after `words`, or an empty text.
std::string quoted_after(std::string_view line, std::string_view words) {
  const size_t at = line.find(words);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + words.size());
  const size_t end = line.find('\'');
  return end == std::string_view::npos ? "" : printable(line.substr(0, end));
}

// Returns whether the program starts others as another user, in a container or on another machine, without PYTHONPATH.
bool runs_elsewhere(std::string_view program) {
  constexpr std::array<std::string_view, 6> kPrograms = {"sudo",   "doas",    "docker",
                                                         "podman", "nerdctl", "ssh"};
  return std::ranges::find(kPrograms, program) != kPrograms.end();
}

std::string advice_on_module(const std::string& module, const RankContext& rank) {
  const std::string python = rank.interpreter.empty() ? "its Python" : printable(rank.interpreter);
  const std::string lacks = cat("; ", python, " has no module '", module, "'");
  const bool is_package = module == "horovod" && !rank.package_folder.empty();
  if (is_package && runs_elsewhere(rank.program)) {
    return cat(lacks, ", and ", rank.program,
               " does not pass on PYTHONPATH, by which ranks find that of this horovodrun: install "
               "horovod where ",
               rank.program, " runs Python");
  }
  if (is_package && !rank.has_package) {
    return cat(lacks, ": --ship gives the ranks that of this horovodrun");
  }
  if (module == "horovod" && !rank.package_python.empty()) {
    return cat(lacks, ", which ", rank.package_python,
               " has: start the ranks with that interpreter");
  }
  const std::string remedy = rank.has_environment ? "add it to the file of --stage-env"
                                                  : "list it in a file, and give that to all hosts "
                                                    "by --stage-env requirements.txt";
  if (!rank.module_python.empty()) {
    return cat(lacks, ", which ", rank.module_python,
               " of this machine has: start the ranks with that interpreter, or ", remedy);
  }
  return cat(lacks, ": install it there, start the ranks with an interpreter that has it, or ",
             remedy);
}

// Returns the folder of the original's package if a traceback passes through it; else an empty text. This project's
// package has no function in the file that is searched for.
std::string original_package(const std::vector<std::string_view>& lines) {
  for (const std::string_view line : lines) {
    const size_t begin = line.find("File \"");
    const size_t end = line.find("/horovod/common/basics.py\", line ");
    if (begin != std::string_view::npos && end != std::string_view::npos && begin + 6 <= end) {
      return printable(line.substr(begin + 6, end - begin - 6));
    }
  }
  return {};
}

std::string advice_on_original(const std::string& folder, const RankContext& rank) {
  const std::string shadows = cat("; the ranks import the original Horovod in ", folder);
  if (!rank.package_folder.empty()) {
    return cat(shadows, ", and this horovodrun's package is in ", rank.package_folder,
               ": set PYTHONPATH=", rank.package_folder);
  }
  const std::string python = rank.interpreter.empty() ? "python3" : printable(rank.interpreter);
  return cat(shadows, ": uninstall it there (", python,
             " -m pip uninstall horovod), and then install this horovodrun's package, or give "
             "--insecure-compat for ranks of the original");
}

}  // namespace

std::string last_lines(std::string_view text, size_t tag) {
  const std::vector<std::string_view> lines = lines_of(text);
  const std::vector<Traceback> tracebacks = tracebacks_of(lines, tag);
  const Traceback* const fatal = last_fatal(tracebacks);
  const size_t start = fatal == nullptr ? lines.size() : fatal->begin;
  std::vector<bool> is_shown(lines.size(), true);
  const auto hide = [&](size_t begin, size_t end) {
    std::fill(is_shown.begin() + static_cast<long>(begin),
              is_shown.begin() + static_cast<long>(end), false);
  };
  // Hides tracebacks of destructors at exit, and the line before each traceback.
  for (size_t at = 1; at < tracebacks.size(); ++at) {
    const Traceback& each = tracebacks[at];
    const size_t begin = each.is_chained ? tracebacks[at - 1].end : each.begin - 1;
    if (each.is_survived && each.begin > start) hide(begin, each.end);
  }
  std::vector<TracebackFrame> frames = frames_of(lines);
  std::erase_if(frames, [&](const TracebackFrame& frame) {
    return frame.begin < start || !is_shown[frame.begin];
  });
  const TracebackFrame* users = frames.empty() ? nullptr : &users_frame(frames);
  for (const TracebackFrame& frame : frames) {
    hide(frame.end, frame.empty_end);
    if (&frame == users || !is_of_horovod(frame)) continue;
    hide(frame.begin, frame.end);
  }
  size_t first = lines.size();
  for (size_t count = 0; first > 0 && count < kLines;) count += is_shown[--first];
  std::string shown;
  const auto show = [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; ++at) {
      if (is_shown[at]) shown.append(lines[at]).append("\n");
    }
  };
  if (users != nullptr && users->begin < first) {
    show(users->begin, users->end);
    first = std::max(first, users->end);
  }
  show(first, lines.size());
  return shown;
}

std::string exception_of(std::string_view text, size_t tag) {
  const std::vector<std::string_view> lines = lines_of(text);
  const std::vector<Traceback> tracebacks = tracebacks_of(lines, tag);
  const Traceback* const fatal = last_fatal(tracebacks);
  if (fatal == nullptr || fatal->exception == fatal->end) return {};
  return exception_name(without_rank_of_torch(lines[fatal->exception].substr(tag)));
}

std::string missing_module(std::string_view lines) {
  const auto each = lines_of(lines);
  return each.empty() ? "" : quoted_after(each.back(), "ModuleNotFoundError: No module named '");
}

std::string advice_on(std::string_view lines, const RankContext& rank) {
  const auto each = lines_of(lines);
  if (each.empty()) return {};
  const std::string module = missing_module(lines);
  if (!module.empty()) return advice_on_module(module, rank);
  const std::string folder = rank.may_be_original ? "" : original_package(each);
  if (!folder.empty()) {
    return advice_on_original(folder, rank);
  }
  if (rank.lacks_input && each.back().find("EOFError: ") != std::string_view::npos) {
    return "; standard input goes to rank 0 only: --stdin all gives it to every rank";
  }
  return {};
}

}  // namespace hvd::launcher
