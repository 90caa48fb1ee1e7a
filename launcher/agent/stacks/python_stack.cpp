#include "launcher/agent/stacks/python_stack.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFrames = 200;

// Returns an empty text if the object has no text for the key: py-spy may write null.
std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

int64_t integer_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number_integer() ? 0 : found->get<int64_t>();
}

PythonFrame read_frame(const Json& json) {
  PythonFrame frame{text_in(json, "name"), text_in(json, "filename"), integer_in(json, "line")};
  const std::string module = text_in(json, "module");
  if (frame.line == 0 && !module.empty()) frame.file = module;
  return frame;
}

std::optional<PythonStack> read_frames(const Json& thread) {
  const auto frames = thread.find("frames");
  if (frames == thread.end() || !frames->is_array()) return {};
  PythonStack stack;
  for (const Json& frame : *frames) {
    if (!frame.is_object()) return {};
    if (stack.size() < kMaxFrames) stack.push_back(read_frame(frame));
  }
  return stack;
}

bool is_installed(std::string_view file) {
  return file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos ||
         file.find("/python/horovod/") != std::string_view::npos ||  // in a build or a copy
         file.find("/lib/python3") != std::string_view::npos || file.starts_with("<frozen ");
}

}  // namespace

Result<PythonStack> read_py_spy(std::string_view text, pid_t pid) {
  const Status refused = internal_error("py-spy printed no stacks");
  const Json threads = Json::parse(text, nullptr, false);
  if (!threads.is_array()) return refused;
  std::optional<PythonStack> first, main, own;
  for (const Json& thread : threads) {
    if (!thread.is_object()) return refused;
    auto stack = read_frames(thread);
    if (!stack) return refused;
    if (!first) first = stack;
    if (!main && text_in(thread, "thread_name") == "MainThread") main = stack;
    if (!own && integer_in(thread, "os_thread_id") == pid) own = std::move(stack);
  }
  if (own) return *own;
  return main ? *main : first.value_or(PythonStack());
}

PythonStack read_faulthandler(std::string_view text) {
  PythonStack stack;
  constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = " in ";
  while (!text.empty()) {
    const std::string_view line = trim(take_line(text));
    const size_t end = line.rfind(kLine);
    if (!line.starts_with(kFile) || end == std::string_view::npos) continue;
    const std::string_view rest = line.substr(end + kLine.size());
    const size_t in = rest.find(kIn);
    const auto number = parse_int(rest.substr(0, in));
    if (!number || in == std::string_view::npos) continue;
    stack.push_back({.function = std::string(rest.substr(in + kIn.size())),
                     .file = std::string(line.substr(kFile.size(), end - kFile.size())),
                     .line = *number});
  }
  return stack;
}

std::string describe_frame(const PythonFrame& frame) {
  constexpr size_t kLongest = 400;
  const std::string function = printable(frame.function, kLongest);
  if (frame.line == 0) return cat(function, " in ", printable(frame.file, kLongest));
  return cat("File \"", printable(frame.file, kLongest), "\", line ", frame.line, " in ", function);
}

const PythonFrame* own_frame(const PythonStack& stack) {
  if (stack.empty()) return nullptr;
  const auto own = std::ranges::find_if(
      stack, [](const PythonFrame& frame) { return frame.line != 0 && !is_installed(frame.file); });
  return own == stack.end() ? &stack.front() : &*own;
}

std::string place_of(const PythonStack& stack) {
  const PythonFrame* const frame = own_frame(stack);
  if (frame == nullptr) return {};
  const std::string_view file = frame->file;
  return cat(printable(file.substr(file.rfind('/') + 1)), ":", frame->line);
}

}  // namespace hvd::launcher
