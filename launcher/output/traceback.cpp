#include "launcher/output/traceback.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// Begins a traceback within a message. Also matches "Original Traceback ..." and TensorFlow's "Detected at node ...".
constexpr std::string_view kInnerHeader = "(most recent call last):";
constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::string_view kGroupHeader = "  + Exception Group Traceback (most recent call last):";

// Returns whether the line introduces a traceback after which the program continues.
bool introduces_survived(std::string_view line) {
  for (const std::string_view each :
       {"Exception ignored ", "Exception in thread ", "Exception in callback ",
        "Exception in Tkinter callback", "Error in atexit", "--- Logging error ---", "future: <"}) {
    if (line.starts_with(each)) return true;
  }
  return line.starts_with("Process ") && line.ends_with(':');  // a child of multiprocessing
}

// Returns the text of " | ValueError: x" within an ExceptionGroup, or nothing for a line outside the group.
std::optional<std::string_view> within_margin(std::string_view line) {
  const size_t at = line.find_first_not_of(' ');
  if (at == 0 || at == std::string_view::npos || (line[at] != '|' && line[at] != '+')) return {};
  line.remove_prefix(at + 1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

class Reader {
 public:
  Reader(const std::vector<std::string_view>& lines, size_t tag) : lines_(lines), tag_(tag) {}

  std::vector<Traceback> read() {
    std::vector<Traceback> found;
    for (size_t at = 0; at < lines_.size();) {
      const bool is_group = line(at).starts_with(kGroupHeader);
      if (!is_group && !line(at).starts_with(kHeader)) {
        ++at;
        continue;
      }
      Traceback next{.begin = at, .end = at + 1};
      link(next, found);
      if (is_group)
        read_group(next);
      else
        read_frames(next);
      at = next.end;
      found.push_back(next);
    }
    return found;
  }

 private:
  std::string_view line(size_t at) const {
    return without_rank_of_torch(lines_[at].substr(std::min(tag_, lines_[at].size())));
  }

  void link(Traceback& next, const std::vector<Traceback>& found) const {
    size_t before = next.begin;
    while (before > 0 && line(before - 1).empty()) --before;
    if (before == 0) return;
    next.is_chained = links_tracebacks(line(before - 1)) && !found.empty();
    next.is_survived =
        next.is_chained ? found.back().is_survived : introduces_survived(line(before - 1));
  }

  void read_frames(Traceback& next) const {
    next.name = next.exception = first_outside(next.end);
    next.end = std::min(next.name + 1, lines_.size());
    if (next.name == lines_.size()) return;
    // Finds a traceback within the message.
    for (size_t at = next.end; at < lines_.size() && !line(at).starts_with(kHeader); ++at) {
      if (links_tracebacks(line(at)) || line(at).starts_with(kGroupHeader)) return;
      if (line(at).starts_with(' ') || !line(at).ends_with(kInnerHeader)) continue;
      const size_t inner = first_outside(at + 1);
      if (inner == lines_.size()) return;
      at = next.exception = inner;
      next.end = inner + 1;
    }
  }

  // Returns the first line after the frames.
  size_t first_outside(size_t at) const {
    const auto is_frame = [](std::string_view each) {
      return each.empty() || each[0] == ' ' || each == "<stack traces unavailable>";
    };
    while (at < lines_.size() && is_frame(line(at))) ++at;
    return at;
  }

  void read_group(Traceback& next) const {
    for (; next.end < lines_.size(); ++next.end) {
      const auto text = within_margin(line(next.end));
      if (!text) break;
      const bool is_name = !text->empty() && text->find_first_of(" -+|") != 0 &&
                           !text->starts_with(kHeader) && !links_tracebacks(*text);
      if (is_name) next.exception = next.end;
    }
    next.name = next.exception = next.exception == 0 ? next.end : next.exception;
  }

  const std::vector<std::string_view>& lines_;
  const size_t tag_;
};

bool is_installed(std::string_view file) {
  for (const std::string_view each :
       {"/dist-packages/", "/site-packages/", "/lib/python3", "<frozen "}) {
    if (file.find(each) != std::string_view::npos) return true;
  }
  return false;
}

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

// Returns the folder of the original Horovod's package if a traceback passes through its common/basics.py; else an
// empty text. This project's package has no such functions.
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

std::string_view without_rank_of_torch(std::string_view line) {
  constexpr std::string_view kRank = "[rank";
  if (!line.starts_with(kRank)) return line;
  size_t at = kRank.size();
  while (at < line.size() && line[at] >= '0' && line[at] <= '9') ++at;
  if (at == kRank.size() || !line.substr(at).starts_with("]:")) return line;
  line.remove_prefix(at + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

bool links_tracebacks(std::string_view line) {
  return line == "During handling of the above exception, another exception occurred:" ||
         line == "The above exception was the direct cause of the following exception:";
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::vector<Traceback> tracebacks_of(const std::vector<std::string_view>& lines, size_t tag) {
  return Reader(lines, tag).read();
}

const Traceback* last_fatal(const std::vector<Traceback>& tracebacks) {
  const auto found = std::find_if(tracebacks.rbegin(), tracebacks.rend(),
                                  [](const Traceback& each) { return !each.is_survived; });
  return found == tracebacks.rend() ? nullptr : &*found;
}

std::string exception_name(std::string_view line) {
  return std::string(within_margin(line).value_or(line));
}

std::vector<TracebackFrame> frames_of(const std::vector<std::string_view>& lines) {
  constexpr std::string_view kFile = "  File \"", kIn = ", in ";
  std::vector<TracebackFrame> frames;
  for (size_t at = 0; at < lines.size();) {
    const std::string_view line = lines[at++];
    const size_t tag = line.find(kFile);  // the length of the tag
    const size_t end = line.find("\", line ", tag);
    if (tag == std::string_view::npos || end == std::string_view::npos) continue;
    const size_t function = line.find(kIn, end);
    TracebackFrame frame{
        at - 1, at, at, line.substr(tag + kFile.size(), end - tag - kFile.size()),
        function == std::string_view::npos ? "" : line.substr(function + kIn.size())};
    const auto is_source = [&](std::string_view next) {
      return next.size() > tag && next.substr(tag).starts_with("  ") &&
             next.substr(tag).find(kFile) != 0;
    };
    while (at < lines.size() && is_source(lines[at])) ++at;
    frame.end = at;
    if (at < lines.size() && lines[at] == line.substr(0, tag)) ++at;
    frame.empty_end = at;
    frames.push_back(frame);
  }
  return frames;
}

// Functions that TensorFlow compiles from strings have the file name <string>.
bool is_of_horovod(const TracebackFrame& frame) {
  constexpr std::string_view kPackage = "/horovod/";
  const std::string_view file = frame.file;
  if (file == "<string>") return frame.function.starts_with("horovod_");
  const size_t at = file.rfind(kPackage);
  if (at == std::string_view::npos) return false;
  const std::string_view module = file.substr(at + kPackage.size());
  for (const std::string_view each : {"_", "jax/", "keras/", "mxnet/", "numpy/", "process_sets.py",
                                      "runner/", "tensorflow/", "torch/"}) {
    if (module.starts_with(each)) return true;
  }
  return false;
}

const TracebackFrame& users_frame(const std::vector<TracebackFrame>& frames) {
  for (const bool may_be_installed : {false, true}) {
    for (size_t at = frames.size(); at-- > 0;) {
      const std::string_view file = frames[at].file;
      if (!is_of_horovod(frames[at]) && (may_be_installed || !is_installed(file)))
        return frames[at];
    }
  }
  return frames.front();
}

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
  // Hide tracebacks that Python survives, each with the line before it.
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
