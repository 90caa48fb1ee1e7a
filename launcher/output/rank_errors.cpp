#include "launcher/output/rank_errors.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kLines = 10;

// Without the bytes that end it.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

// One frame of a traceback: a line that names the file, and the lines of source behind it. TensorFlow
// writes an empty line in their place.
struct TracebackFrame {
  size_t begin;
  size_t end;
  size_t empty_end;
  std::string_view file;
  std::string_view function;
};

std::vector<TracebackFrame> frames_of(const std::vector<std::string_view>& lines) {
  constexpr std::string_view kFile = "  File \"", kIn = ", in ";
  std::vector<TracebackFrame> frames;
  for (size_t at = 0; at < lines.size();) {
    const std::string_view line = lines[at++];
    const size_t tag = line.find(kFile);  // its length
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

// Wherever a build or an installation has put the package. TensorFlow makes the functions of its
// operations out of strings.
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

bool is_installed(std::string_view file) {
  for (const std::string_view each :
       {"/dist-packages/", "/site-packages/", "/lib/python3", "<frozen "}) {
    if (file.find(each) != std::string_view::npos) return true;
  }
  return false;
}

// The deepest frame of the user's code, and the first where none looks like it.
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

// The name between quotes behind `words`, or empty.
std::string quoted_after(std::string_view line, std::string_view words) {
  const size_t at = line.find(words);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + words.size());
  const size_t end = line.find('\'');
  return end == std::string_view::npos ? "" : printable(line.substr(0, end));
}

std::string advice_on_module(const std::string& module, const RankContext& rank) {
  const std::string python = rank.interpreter.empty() ? "its Python" : printable(rank.interpreter);
  const std::string lacks = cat("; ", python, " has no module '", module, "'");
  if (module == "horovod" && !rank.package_folder.empty()) {
    return cat(lacks, ", which this horovodrun has in ", rank.package_folder,
               ": set PYTHONPATH=", rank.package_folder);
  }
  if (module == "horovod" && !rank.package_python.empty()) {
    return cat(lacks, ", which ", rank.package_python,
               " has: start the ranks with that interpreter");
  }
  return cat(lacks, ": install it there, or start the ranks with an interpreter that has it");
}

// The folder that holds the original's package, where a traceback goes through it; else empty. No
// function of this project's package is in that file.
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
  return cat(shadows,
             ": uninstall it there (pip uninstall horovod), install this horovodrun's "
             "package, or give --insecure-compat for ranks of the original");
}

}  // namespace

std::string last_lines(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  size_t start = lines.size();  // first line of the last traceback
  while (start > 0 &&
         lines[start - 1].find("Traceback (most recent call last):") == std::string_view::npos) {
    --start;
  }
  std::vector<TracebackFrame> frames = frames_of(lines);
  std::erase_if(frames, [&](const TracebackFrame& frame) { return frame.begin < start; });
  std::vector<bool> is_shown(lines.size(), true);
  const TracebackFrame* users = frames.empty() ? nullptr : &users_frame(frames);
  const auto hide = [&](size_t begin, size_t end) {
    std::fill(is_shown.begin() + static_cast<long>(begin),
              is_shown.begin() + static_cast<long>(end), false);
  };
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

std::string exception_of(std::string_view text) {
  constexpr std::string_view kTraceback = "Traceback (most recent call last):";
  size_t tag = std::string_view::npos;  // its length
  std::string exception;
  for (const std::string_view line : lines_of(text)) {
    if (const size_t begin = line.find(kTraceback); begin != std::string_view::npos) {
      tag = begin;
      exception.clear();
    } else if (tag != std::string_view::npos && exception.empty() && line.size() > tag &&
               line[tag] != ' ') {
      exception = line.substr(tag);
    }
  }
  return exception;
}

std::string advice_on(std::string_view lines, const RankContext& rank) {
  const auto each = lines_of(lines);
  if (each.empty()) return {};
  const std::string module = quoted_after(each.back(), "ModuleNotFoundError: No module named '");
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
