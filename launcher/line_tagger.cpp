#include "launcher/line_tagger.h"

#include <algorithm>

namespace hvd::launcher {

void LineTagger::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) return hold(bytes, out);
    // A progress bar's lone '\r' is shown at once: nobody waits for a '\n' that may never come.
    const bool both = bytes[end] == '\r' && end + 1 < bytes.size() && bytes[end + 1] == '\n';
    end += both ? 2 : 1;
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end);
    while (held_.size() + line.size() > kMaxLine + 2) {
      const size_t room = kMaxLine - held_.size();
      hold(line.substr(0, room), out);
      line.remove_prefix(room);
    }
    out.append(tag_).append(held_).append(line);
    held_.clear();
  }
}

void LineTagger::hold(std::string_view piece, std::string& out) {
  while (!piece.empty()) {
    const size_t room = std::min(kMaxLine - held_.size(), piece.size());
    held_.append(piece.substr(0, room));
    piece.remove_prefix(room);
    if (held_.size() == kMaxLine) finish(out);
  }
}

void LineTagger::finish(std::string& out) {
  if (held_.empty()) return;
  out.append(tag_).append(held_).append("\n");
  held_.clear();
  held_.shrink_to_fit();
}

}  // namespace hvd::launcher
