#include "launcher/agent/stacks/python_stack.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/text.h"
#include "base/words.h"

namespace hvd::launcher {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxFrames = 200;

// Reads JSON piece by piece; after the first error, each piece is empty.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : left_(text) {}

  bool failed() const { return failed_; }
  bool is_at_end() {
    skip_space();
    return left_.empty();
  }

  // Calls `each` for each element, which it must read.
  void array(const std::function<void()>& each) { list('[', ']', each); }
  void object(const std::function<void(std::string_view key)>& each) {
    list('{', '}', [&] {
      const std::string key = string();
      if (expect(':')) each(key);
    });
  }

  // Empty for null.
  std::string string() {
    if (peek() == 'n') return skip(), std::string();
    if (!expect('"')) return {};
    std::string text;
    while (!left_.empty() && left_.front() != '"') {
      const char byte = take();
      if (byte == '\\')
        escape(text);
      else
        text += byte;
    }
    expect('"');
    return text;
  }

  // 0 for null, for a fraction and for a number that int64_t cannot hold.
  int64_t integer() {
    const std::string_view word = literal();
    return parse_int(word).value_or(0);
  }

  bool boolean() { return literal() == "true"; }

  void skip() {
    const char next = peek();
    if (next == '{') return object([this](std::string_view) { skip(); });
    if (next == '[') return array([this] { skip(); });
    if (next == '"')
      string();
    else
      literal();
  }

 private:
  void skip_space() {
    while (!left_.empty() && (left_.front() == ' ' || left_.front() == '\n' ||
                              left_.front() == '\t' || left_.front() == '\r')) {
      left_.remove_prefix(1);
    }
  }
  char peek() {
    skip_space();
    return failed_ || left_.empty() ? '\0' : left_.front();
  }
  char take() {
    const char byte = left_.front();
    left_.remove_prefix(1);
    return byte;
  }
  bool expect(char byte) {
    if (peek() == byte && byte != '\0') return take(), true;
    failed_ = true;
    return false;
  }
  std::string_view literal() {
    peek();
    const size_t size = std::min(left_.find_first_of(",]} \n\t\r\"[{:"), left_.size());
    const std::string_view word = left_.substr(0, size);
    left_.remove_prefix(size);
    failed_ |= word.empty();
    return word;
  }

  void list(char open, char close, const std::function<void()>& each) {
    if (!expect(open)) return;
    if (++depth_ > kMaxDepth) failed_ = true;
    if (peek() != close) {
      do {
        each();
      } while (!failed_ && peek() == ',' && expect(','));
    }
    expect(close);
    --depth_;
  }

  void escape(std::string& text) {
    if (left_.empty()) return;
    const char byte = take();
    constexpr std::string_view kNames = "bfnrt", kBytes = "\b\f\n\r\t";
    if (const size_t at = kNames.find(byte); at != std::string_view::npos) {
      text += kBytes[at];
    } else if (byte == 'u') {
      // A name beyond ASCII comes as UTF-8; only control characters are written this way.
      const std::string_view digits = left_.substr(0, 4);
      left_.remove_prefix(digits.size());
      int code = 0;
      for (const char digit : digits) {
        const size_t value =
            std::string_view("0123456789abcdef")
                .find(digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit);
        if (value == std::string_view::npos) failed_ = true;
        code = code * 16 + static_cast<int>(value & 15);
      }
      if (code < 0x80)
        text += static_cast<char>(code);
      else
        text += '?';
    } else {
      text += byte;
    }
  }

  std::string_view left_;
  bool failed_ = false;
  int depth_ = 0;
};

struct Thread {
  std::string name;
  int64_t id = 0;  // of the kernel
  PythonStack stack;
};

PythonFrame read_frame(JsonReader& json) {
  PythonFrame frame;
  std::string module;
  json.object([&](std::string_view key) {
    if (key == "name")
      frame.function = json.string();
    else if (key == "filename")
      frame.file = json.string();
    else if (key == "module")
      module = json.string();
    else if (key == "line")
      frame.line = json.integer();
    else
      json.skip();
  });
  if (frame.line == 0 && !module.empty()) frame.file = module;
  return frame;
}

Thread read_thread(JsonReader& json) {
  Thread thread;
  json.object([&](std::string_view key) {
    if (key == "thread_name") {
      thread.name = json.string();
    } else if (key == "os_thread_id") {
      thread.id = json.integer();
    } else if (key == "frames") {
      json.array([&] {
        PythonFrame frame = read_frame(json);
        if (thread.stack.size() < kMaxFrames) thread.stack.push_back(std::move(frame));
      });
    } else {
      json.skip();
    }
  });
  return thread;
}

bool is_installed(std::string_view file) {
  return file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos ||
         file.find("/python/horovod/") != std::string_view::npos ||  // of a build or a copy
         file.find("/lib/python3") != std::string_view::npos || file.starts_with("<frozen ");
}

}  // namespace

Result<PythonStack> read_py_spy(std::string_view text, pid_t pid) {
  JsonReader json(text);
  std::vector<Thread> threads;
  json.array([&] { threads.push_back(read_thread(json)); });
  if (json.failed() || !json.is_at_end()) return internal_error("py-spy printed no stacks");
  for (const auto& is_main :
       {std::function([&](const Thread& each) { return each.id == pid; }),
        std::function([](const Thread& each) { return each.name == "MainThread"; })}) {
    const auto found = std::ranges::find_if(threads, is_main);
    if (found != threads.end()) return found->stack;
  }
  return threads.empty() ? PythonStack() : threads.front().stack;
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
